"""Is this data what it claims to be: the files of a run against their contract, one by one and against each other."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from ckaudit.contract.contradictions import is_of_other_unit
from ckaudit.contract.folder import RunFolder, shown_name
from ckaudit.contract.report import Finding, Report
from ckaudit.policy.gate import OPEN, Gate
from ckaudit.validate.arguments import sort_arguments
from ckaudit.validate.derived_value_checks import contradicted_claims
from ckaudit.validate.file_facts import RunFacts
from ckaudit.validate.loss_match import disagreements
from ckaudit.validate.manifest_completeness import manifest_gaps
from ckaudit.validate.ranks import lonely_ranks, ranks_out_of_range, unlisted_sessions
from ckaudit.validate.retry_unfinished import Patience
from ckaudit.validate.run_reader import Survey
from ckaudit.validate.sequence_checks import cadence_gaps, clock_back, duplicate_steps, mixed_versions, sessions_back
from ckaudit.validate.tensors import layout_changes, table_contradictions
from ckaudit.validate.validation_report import make_report

ALWAYS = (
    mixed_versions,
    duplicate_steps,
    layout_changes,
    sessions_back,
    clock_back,
    ranks_out_of_range,
    table_contradictions,
    disagreements,
)
WHOLE_RUNS = (cadence_gaps, lonely_ranks, unlisted_sessions, manifest_gaps)


def validate(
    paths: Sequence[Path],
    *,
    gate: Gate = OPEN,
    progress: Callable[[int, int], None] | None = None,
    units: Mapping[str, str] = MappingProxyType({}),
) -> Report:
    """Judge run folders, or single files, against the contract.

    Each folder is a run. Files named one by one are judged as part of the run of their folder, without asking for what
    is missing.

    Args:
        paths: Folders and files.
        gate: Policy and baseline.
        progress: Called after each file with the number of files read, and of all files.
        units: The unit of a share by name, where the user says it: such a share is not blamed for being in the other one.

    Raises:
        UnreadableError: Where none of `paths` can be read, or nothing in them can be audited.
        UsageError: Where `units` names what is no share, or no unit.
    """
    if units:
        from ckaudit.run.units import check_units

        check_units(units)
    folders, findings = sort_arguments(paths)
    total = sum(_count(folder) for folder, _ in folders)
    done = 0

    def tick() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    patience = Patience()
    surveys = []
    for folder, prefix in folders:
        survey = Survey(RunFacts(folder), prefix, tick, patience)
        survey.read()
        surveys.append(survey)
        findings += [*survey.findings, *_judge_run(survey.run), *contradicted_claims(survey.run, units)]
    findings = [each for each in findings if not is_of_other_unit(each, units)]
    notes = [note for survey in surveys for note in survey.notes]
    subject = ", ".join(shown_name(str(path)) for path in paths)
    return make_report(subject, findings, [survey.run for survey in surveys], notes, total, gate)


def _judge_run(run: RunFacts) -> Iterator[Finding]:
    for check in ALWAYS + WHOLE_RUNS if run.whole else ALWAYS:
        yield from check(run)


def _count(folder: RunFolder) -> int:
    return len(folder.checkpoints) + len(folder.history) + len(folder.scalars) + (folder.manifest is not None)
