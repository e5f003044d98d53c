"""From findings to the report: gravest first, counted, and one sentence on top."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from ckaudit import __version__
from ckaudit.contract.fold_findings import across_files, same_place
from ckaudit.contract.report import SEVERITIES, VERSION, Finding, Report, worst
from ckaudit.material.counts import plural
from ckaudit.policy.apply_policy import settle
from ckaudit.policy.gate import OPEN, Gate, over
from ckaudit.validate.file_facts import RunFacts
from ckaudit.validate.outcomes import outcomes


def make_report(
    subject: str, findings: list[Finding], runs: Sequence[RunFacts], notes: list[str], files: int, gate: Gate = OPEN
) -> Report:
    """Put the report of a validation together; of the policy's profiles only those count whose scale or stage it says itself."""
    clauses, used = gate.at()
    found = sorted((_writable(finding) for finding in findings), key=_gravity)
    settled = settle(found, outcomes(found, runs), today=gate.today, clauses=clauses, baseline=gate.baseline, notes_fail=True)
    ordered = sorted(across_files(settled.findings, same_place), key=_gravity)
    return Report(
        schema_version=VERSION,
        tool=f"ckaudit {__version__}",
        command="validate",
        subject=subject,
        verdict=_sentence(ordered, runs, files, broken=_broken(settled.findings), hidden=len(settled.suppressed)),
        severity=worst(ordered),
        findings=ordered,
        checks=settled.checks,
        notes=[*notes, *over(settled.ended, gate)],
        files=files,
        policy=used,
        baseline=gate.baseline.file if gate.baseline else None,
        suppressed=settled.suppressed,
        stale=settled.stale,
    )


def _gravity(finding: Finding) -> tuple[int, str, int, str, str, str]:
    where = (finding.file or "", finding.line or 0, finding.code, finding.pointer or "", finding.message)
    return SEVERITIES.index(finding.severity), *where


def _sentence(findings: Sequence[Finding], runs: Sequence[RunFacts], files: int, *, broken: int, hidden: int) -> str:
    counts = Counter(finding.severity for finding in findings)
    told = ", ".join(f"{counts[severity]} {severity}" for severity in SEVERITIES[:3] if counts[severity])
    all_files = "1 file" if files == 1 else f"{files:,} files"
    if not told and hidden:
        return f"nothing new in {all_files}; {plural(hidden, 'finding')} {'is' if hidden == 1 else 'are'} accepted"
    if not told:
        return f"{all_files} {'follows' if files == 1 else 'follow'} {_contracts(runs)}"
    return f"{broken:,} of {all_files} {'breaks' if broken == 1 else 'break'} the contract: {told}"


def _broken(findings: Sequence[Finding]) -> int:
    """Count the files in which anything is wrong."""
    return len({finding.file for finding in findings if finding.severity != "note"})


def _contracts(runs: Sequence[RunFacts]) -> str:
    """Name the versions that files of these runs follow."""
    there = (
        ("ck.analysis.v1", any(run.checkpoints or run.history for run in runs)),
        ("ck.run.v1", any(run.manifest for run in runs)),
        ("ck.scalars.v1", any(run.logs for run in runs)),
    )
    names = [name for name, used in there if used]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "the contract"


def _writable(finding: Finding) -> Finding:
    """Replace what UTF-8 cannot write, half of a surrogate pair in a key for instance, by its number."""
    try:
        msgspec.json.encode(finding)
    except UnicodeEncodeError:
        texts = {name: getattr(finding, name) for name in finding.__struct_fields__}
        changed = {name: text.encode(errors="backslashreplace").decode() for name, text in texts.items() if isinstance(text, str)}
        return msgspec.structs.replace(finding, **changed)
    return finding
