"""Validation: the files of a run compared with their contract and with each other."""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from shlex import quote
from stat import S_ISDIR
from types import MappingProxyType

import msgspec

from ckaudit import __version__
from ckaudit.contract import violations
from ckaudit.contract.contradictions import is_of_other_unit
from ckaudit.contract.io.files import MANIFEST_NAME
from ckaudit.contract.io.folder import (
    RunFiles,
    first_bytes,
    holds_run,
    is_own_name,
    list_files,
    list_folder,
    refuse_special,
    shown_name,
)
from ckaudit.contract.schema.report import SEVERITIES, VERSION, Finding, Report, gravest
from ckaudit.contract.summaries import across_files, same_place
from ckaudit.errors import UnreadableError
from ckaudit.policy.acceptance import OPEN, AcceptanceCriteria, ended_ignores
from ckaudit.policy.apply_policy import apply_policy
from ckaudit.validate.file_facts import RunFacts
from ckaudit.validate.outcomes import outcomes
from ckaudit.validate.run_checks import (
    cadence_gaps,
    clock_back,
    contradicted_claims,
    disagreements,
    duplicate_steps,
    lonely_ranks,
    manifest_gaps,
    mixed_versions,
    ranks_out_of_range,
    sessions_back,
    unlisted_sessions,
)
from ckaudit.validate.run_reader import ReadPatience, RunReader
from ckaudit.validate.tensors import layout_changes, table_contradictions
from ckaudit.wording import plural

RUN_CHECKS = (
    mixed_versions,
    duplicate_steps,
    layout_changes,
    sessions_back,
    clock_back,
    ranks_out_of_range,
    table_contradictions,
    disagreements,
)

WHOLE_RUN_CHECKS = (cadence_gaps, lonely_ranks, unlisted_sessions, manifest_gaps)

NOTHING = "holds no checkpoint, no scalar log and no run.json"

HEAD_BYTES = 65536
"""Bytes that contain the version of a contract file; a longer search would read more than the user asked for."""

DOCUMENTS = (".json", ".json.gz", ".json.zst")


def validate(
    paths: Sequence[Path],
    *,
    criteria: AcceptanceCriteria = OPEN,
    progress: Callable[[int, int], None] | None = None,
    units: Mapping[str, str] = MappingProxyType({}),
) -> Report:
    """Check run folders, or single files, against the contract.

    Each folder is a run. Single files are checked as part of the run in their folder, without findings on missing files.

    Args:
        paths: Folders and files.
        criteria: Policy and baseline.
        progress: Called after each file with the number of files read and their total.
        units: The user's unit of a share by name: such a share gets no finding on its unit.

    Raises:
        UnreadableError: If none of `paths` can be read, or nothing in them can be audited.
        UsageError: If `units` has a name that is not a share, or an unknown unit.
    """
    if units:
        from ckaudit.run.units import check_units

        check_units(units)
    folders, findings = sort_arguments(paths)
    total = sum(
        len(folder.checkpoints) + len(folder.history) + len(folder.scalars) + (folder.manifest is not None)
        for folder, _ in folders
    )
    done = 0

    def tick() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    patience = ReadPatience()
    readers = []
    for folder, prefix in folders:
        reader = RunReader(RunFacts(folder), prefix, tick, patience)
        reader.read()
        readers.append(reader)
        checks = RUN_CHECKS + WHOLE_RUN_CHECKS if reader.run.whole else RUN_CHECKS
        findings += [*reader.findings, *chain.from_iterable(check(reader.run) for check in checks)]
        findings += contradicted_claims(reader.run, units)
    findings = [finding for finding in findings if not is_of_other_unit(finding, units)]
    notes = [note for reader in readers for note in reader.notes]
    subject = ", ".join(shown_name(str(path)) for path in paths)
    return make_report(subject, findings, [reader.run for reader in readers], notes, total, criteria)


# The user's arguments: each folder is a run, and files are checked together with those of the same folder.
def sort_arguments(paths: Sequence[Path]) -> tuple[list[tuple[RunFiles, str]], list[Finding]]:
    """Return the runs that the user named, each with the prefix of its file names, and a finding per bad argument.

    Raises:
        UnreadableError: If none of them can be audited.
    """
    named = list(dict.fromkeys(paths))
    runs: list[tuple[RunFiles, str]] = []
    files: dict[Path, list[Path]] = {}
    refused: list[UnreadableError] = []
    findings: list[Finding] = []
    for path in named:
        prefix = f"{path}/" if len(named) > 1 else ""
        try:
            if _is_folder(path):
                runs += [(run, prefix) for run in _runs(path, prefix)]
            else:
                _refuse_other_programs(path)
                files.setdefault(path.parent, []).append(path)
        except UnreadableError as error:
            refused.append(error)
            finding = violations.UNREADABLE.at(shown_name(str(path)), str(error))
            findings.append(msgspec.structs.replace(finding, help=error.hint or finding.help))
    runs += [(list_files(group), "") for group in files.values()]
    if not runs:
        raise refused[0] if refused else UnreadableError("nothing was named", hint="Name a run folder or a checkpoint file.")
    return runs, findings


def _refuse_other_programs(path: Path) -> None:
    """Refuse the log of another program, because every key in it would violate a contract that it does not follow."""
    if path.name == MANIFEST_NAME or is_own_name(path.name) or b'"ck.' in first_bytes(path, HEAD_BYTES):
        return
    from ckaudit.importers import named_format

    if name := named_format(path):
        shown = shown_name(str(path))
        raise UnreadableError(
            f"{shown} is a log of another program ({name}), not a file of ck.analysis.v1",
            hint=f"`ckaudit triage {quote(shown)}` judges it as it is; `ckaudit import` makes a run folder of it.",
        )


def _is_folder(path: Path) -> bool:
    shown = shown_name(str(path))
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UnreadableError(f"cannot read {shown}: {reason}", hint="Name a run folder or a checkpoint file.") from None
    refuse_special(path)
    if not os.access(path, os.R_OK):
        raise UnreadableError(f"cannot read {shown}: permission denied", hint="Check who may read it.")
    return S_ISDIR(mode)


def _runs(path: Path, prefix: str) -> list[RunFiles]:
    """Return the run in a folder; without one, each JSON file by itself: names do not show which files belong together."""
    folder = list_folder(path, prefix=prefix)
    if not folder.is_empty() or folder.manifest is not None:
        return [folder]
    loose = sorted(entry for entry in path.iterdir() if entry.name.endswith(DOCUMENTS) and entry.is_file())
    if not loose:
        raise UnreadableError(f"{shown_name(str(path))} {NOTHING}", hint=_where_else(path))
    return [list_files([entry], prefix=prefix) for entry in loose]


def _where_else(path: Path, *, limit: int = 50) -> str:
    """Return a hint on the first run folder below; of a large tree only the first `limit` folders are searched."""
    below = sorted(entry for entry in path.iterdir() if entry.is_dir() and os.access(entry, os.R_OK))
    for entry in below[:limit]:
        if holds_run(entry):
            return f"Name a run in it, such as {shown_name(str(entry))}."
    return "Name a folder that holds analysis_checkpoint_*.json files."


# From findings to the report: sorted by severity, counted, with one sentence as the verdict.
def make_report(
    subject: str,
    findings: list[Finding],
    runs: Sequence[RunFacts],
    notes: list[str],
    files: int,
    criteria: AcceptanceCriteria = OPEN,
) -> Report:
    """Return the report of a validation; only profiles whose scale or stage the policy itself names apply."""
    clauses, used = criteria.at()
    graded = sorted((_writable(finding) for finding in findings), key=_gravity)
    applied = apply_policy(
        graded, outcomes(graded, runs), today=criteria.today, clauses=clauses, baseline=criteria.baseline, notes_fail=True
    )
    ordered = sorted(across_files(applied.findings, same_place), key=_gravity)
    broken = len({finding.file for finding in applied.findings if finding.severity != "note"})
    return Report(
        schema_version=VERSION,
        tool=f"ckaudit {__version__}",
        command="validate",
        subject=subject,
        verdict=_sentence(ordered, runs, files, broken=broken, hidden=len(applied.suppressed)),
        severity=gravest(finding.severity for finding in ordered),
        findings=ordered,
        checks=applied.checks,
        notes=[*notes, *ended_ignores(applied.ended, criteria)],
        files=files,
        policy=used,
        baseline=criteria.baseline.file if criteria.baseline else None,
        suppressed=applied.suppressed,
        stale=applied.stale,
    )


def _gravity(finding: Finding) -> tuple[int, str, int, str, str, str]:
    where = (finding.file or "", finding.line or 0, finding.code, finding.pointer or "", finding.message)
    return SEVERITIES.index(finding.severity), *where


def _sentence(findings: Sequence[Finding], runs: Sequence[RunFacts], files: int, *, broken: int, hidden: int) -> str:
    counts = Counter(finding.severity for finding in findings)
    severities = ", ".join(f"{counts[severity]} {severity}" for severity in SEVERITIES[:3] if counts[severity])
    all_files = plural(files, "file")
    if not severities and hidden:
        return f"nothing new in {all_files}; {plural(hidden, 'finding')} {'is' if hidden == 1 else 'are'} accepted"
    if not severities:
        return f"{all_files} {'follows' if files == 1 else 'follow'} {_contracts(runs)}"
    return f"{broken:,} of {all_files} {'breaks' if broken == 1 else 'break'} the contract: {severities}"


def _contracts(runs: Sequence[RunFacts]) -> str:
    """Return the versions that the files of these runs follow."""
    contracts = (
        ("ck.analysis.v1", any(run.checkpoints or run.history for run in runs)),
        ("ck.run.v1", any(run.manifest for run in runs)),
        ("ck.scalars.v1", any(run.logs for run in runs)),
    )
    names = [name for name, used in contracts if used]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "the contract"


def _writable(finding: Finding) -> Finding:
    """Replace characters that UTF-8 cannot write, such as half a surrogate pair in a key, by their number."""
    try:
        msgspec.json.encode(finding)
    except UnicodeEncodeError:
        texts = {name: getattr(finding, name) for name in finding.__struct_fields__}
        changed = {name: text.encode(errors="backslashreplace").decode() for name, text in texts.items() if isinstance(text, str)}
        return msgspec.structs.replace(finding, **changed)
    return finding
