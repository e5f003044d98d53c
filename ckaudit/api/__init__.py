"""The commands as functions for notebooks, tests and programs; their results print in short and draw themselves in notebooks."""

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from ckaudit.api.arguments import (
    RunPath,
    checked_names,
    checked_phases,
    checked_text,
    checked_texts,
    checked_word,
    checked_workers,
    naming_addresses,
    path_of,
    path_or_run,
    runs_in,
    settings,
    whole_step,
)
from ckaudit.api.results import Audit, Difference, FleetAudit, Metrics, reached
from ckaudit.audit.engine import triage as triage_path
from ckaudit.audit.engine import triage_run, with_slices
from ckaudit.audit.measure import StepRange, measure, measure_run, select
from ckaudit.contract.schema.diff import AXES, Axis
from ckaudit.contract.schema.report import Severity
from ckaudit.diff.compare import compare, compare_canary
from ckaudit.diff.gate import gated_under
from ckaudit.effective_policy import PolicyNamed, criteria_of
from ckaudit.errors import UsageError
from ckaudit.fleet.engines import engine_at
from ckaudit.fleet.fleet import FleetRequest, audit_fleet
from ckaudit.fleet.like import criteria_like
from ckaudit.policy.policy_schema import NOTHING
from ckaudit.run.run import Run
from ckaudit.validate import validate as validate_paths

__all__ = ["Audit", "Difference", "FleetAudit", "Metrics"]
__all__ += ["assert_healthy", "diff", "fleet", "gate", "metrics", "triage", "validate"]


@naming_addresses
def triage(
    run: RunPath | Run,
    *,
    step: int | None = None,
    columns: Mapping[str, str] | None = None,
    which: str = "",
    questions: Collection[int] = (),
    policy: PolicyNamed = None,
    like: RunPath | Run | Sequence[RunPath | Run] = (),
) -> Audit:
    """Diagnose a run: what is wrong, since which step, in which part, and the most likely cause.

    Args:
        run: A run folder, a checkpoint or a log in a known format, by its path or address; or a run from `read_run`.
        step: Judge with what was known at the end of this step; None: use the whole run.
        columns: The log's own name for a catalogue name or its short form, such as {"loss": "train/nll"}.
        which: Which of several runs in one file, by its name or its number from 1.
        questions: Phases, from 1 to 7, whose questions are to be answered.
        policy: The file of a policy; None: the one that the command line would use in the working folder; False: none.
        like: Healthy runs of the same configuration, or patterns such as "good/*". What leaves their band is a finding, and what
            they show too is normal.

    Raises:
        UnreadableError: Where there is no run.
        UsageError: Where `step` lies before the record, `columns`, `which` or `like` names something that does not exist, or
            the policy is wrong.

    >>> import ckaudit
    >>> audit = ckaudit.triage("fixtures/runs/lr_too_high")
    >>> audit.word, audit.diagnoses[0].cause
    ('SEV1', 'learning_rate_too_high')
    """
    import_options, held = settings(policy, columns=columns, which=which)
    step, questions = whole_step(step), checked_phases(questions)
    subject = path_or_run(run)
    named = runs_in(like, "like")
    held = criteria_like(
        held, [one if isinstance(one, Run) else os.fspath(one) for one in named], runs=[subject], import_options=import_options
    )
    if isinstance(subject, Run):
        return Audit(triage_run(subject, step=step, questions=questions, criteria=held))
    return Audit(triage_path(subject, step=step, import_options=import_options, questions=questions, criteria=held))


@naming_addresses
def validate(*runs: RunPath | Sequence[RunPath], policy: PolicyNamed = None) -> Audit:
    """Check run folders, or single files, against the contract.

    Args:
        runs: The folders or files to check, one after the other or in a list.
        policy: As in `triage`.

    Raises:
        UnreadableError: Where none of them can be read, or nothing in them can be audited.
        UsageError: Where none is named, or the policy is wrong.

    >>> import ckaudit
    >>> ckaudit.validate("fixtures/runs/healthy").word
    'OK'
    """
    named = runs_in(runs)
    if not named:
        raise UsageError("there is nothing to validate", hint="name a run: ckaudit.validate(run)")
    return Audit(validate_paths([path_of(run) for run in named], criteria=criteria_of(policy)))


@naming_addresses
def diff(
    reference: RunPath | Run,
    *others: RunPath | Run | Sequence[RunPath | Run],
    noise: Sequence[RunPath | Run] = (),
    align: Axis = "step",
    step: int | None = None,
    columns: Mapping[str, str] | None = None,
    policy: PolicyNamed = None,
) -> Difference:
    """Compare runs with a reference: where they diverge from it, and whether they are worse.

    Args:
        reference: The run that the others are judged against.
        others: One run or more, one after the other or in a list.
        noise: Runs that differ from the reference by their seed alone.
        align: Compare at equal "step", "tokens" or "loss".
        step: Compare the runs as they were at this step; None: at their ends.
        columns: As in `triage`, for all of the runs.
        policy: As in `triage`; only the columns that it names matter here.

    Raises:
        UnreadableError: Where one of them is not a run.
        UsageError: Where there is nothing to compare, or as in `triage`.

    >>> import ckaudit
    >>> ckaudit.diff("fixtures/runs/healthy", "fixtures/runs/lr_too_high").word
    'worse'
    """
    compared = runs_in(others)
    if not compared:
        raise UsageError("there is nothing to compare it with", hint="name a second run: ckaudit.diff(reference, other)")
    checked_word(align, AXES, "align")
    import_options, _ = settings(policy, columns=columns)
    step = whole_step(step)
    subjects, replicas = ([path_or_run(run) for run in runs] for runs in ((reference, *compared), runs_in(noise, "noise")))
    return Difference(compare(subjects, axis=align, noise=replicas, import_options=import_options, step=step))


@naming_addresses
def gate(
    canary: RunPath | Run,
    *good: RunPath | Run | Sequence[RunPath | Run],
    align: Axis = "step",
    columns: Mapping[str, str] | None = None,
    policy: PolicyNamed = None,
) -> Difference:
    """Judge a run against runs that are known to be good.

    Args:
        canary: The run to judge.
        good: One run or more, one after the other or in a list; the spread between several is taken as chance.
        align: As in `diff`.
        columns: As in `triage`, for all of the runs.
        policy: As in `triage`; its [gate] section says what counts, and what may be worse by how much.

    Raises:
        UnreadableError: Where one of them is not a run.
        UsageError: Where no good run is named, or as in `triage`.

    >>> import ckaudit
    >>> ckaudit.gate("fixtures/runs/lr_too_high", "fixtures/runs/healthy").outcome
    'failed'
    """
    references = runs_in(good)
    if not references:
        raise UsageError("there is no good run to hold it against", hint="name one: ckaudit.gate(canary, good)")
    checked_word(align, AXES, "align")
    import_options, held = settings(policy, columns=columns)
    comparisons = compare_canary(
        path_or_run(canary), [path_or_run(run) for run in references], axis=align, import_options=import_options, criteria=held
    )
    return Difference(gated_under(comparisons, held.policy))


@naming_addresses
def metrics(
    run: RunPath | Run,
    *names: str,
    step: int | None = None,
    columns: Mapping[str, str] | None = None,
    which: str = "",
    policy: PolicyNamed = None,
) -> Metrics:
    """Compute the derived series of a run.

    Args:
        run: As in `triage`.
        names: Metrics, patterns such as "grad_*", or rows such as "M19"; none: all.
        step: Compute with what was known at this step; None: use the whole run.
        columns: As in `triage`.
        which: As in `triage`.
        policy: As in `triage`; only the columns and the slices that it names matter here.

    Raises:
        UnreadableError: Where there is no run.
        UsageError: Where no metric has such a name, or as in `triage`.

    >>> import ckaudit
    >>> losses = ckaudit.metrics("fixtures/runs/healthy", "val_loss")["val_loss"]
    >>> losses.values.shape, losses.steps[:3].tolist()
    ((40, 1), [50, 100, 150])
    """
    import_options, held = settings(policy, columns=columns, which=which)
    clauses = held.policy.base if held.policy else NOTHING
    subject, stretch = path_or_run(run), StepRange(whole_step(step))
    wanted = checked_names(names)
    if isinstance(subject, Run):
        return Metrics(measure_run(with_slices(subject, clauses), select(wanted), stretch))
    return Metrics(
        measure(subject, names=wanted, stretch=stretch, import_options=replace(import_options, tau_slices=clauses.tau_slices))
    )


@naming_addresses
def fleet(
    *patterns: RunPath | Sequence[RunPath],
    like: RunPath | Sequence[RunPath] = (),
    group_by: Sequence[str] = (),
    output: RunPath | None = None,
    jobs: int | None = None,
    engine: str = "",
    columns: Mapping[str, str] | None = None,
    policy: PolicyNamed = None,
) -> FleetAudit:
    """Audit many runs: which are ill, with which cause, since when, and what they have in common.

    Args:
        patterns: Run folders, logs, folders of them, or patterns such as "runs/*"; paths or addresses.
        like: Healthy runs, or patterns of them: each run is compared with those of its own configuration.
        group_by: Facts of run.json to group the runs by, such as "config.lr".
        output: The folder of the data set. Runs in it that have not changed are not audited again. None: nothing is kept.
        jobs: Processes; None: as many as there are cores.
        engine: The address of a cluster, such as "dask://host:8786"; empty: processes of this machine.
        columns: As in `triage`, for all of the runs.
        policy: As in `triage`.

    Raises:
        UsageError: Where no run is named, a pattern matches nothing, or nothing answers at `engine`.

    >>> import ckaudit
    >>> fleet = ckaudit.fleet("fixtures/runs/healthy", "fixtures/runs/lr_too_high", jobs=1)
    >>> fleet.runs[0].cause, fleet.verdict
    ('learning_rate_too_high', '1 of 2 runs is ill')
    """
    named = runs_in(patterns)
    if not named:
        raise UsageError("there is nothing to audit", hint='name runs: ckaudit.fleet("runs/*")')
    import_options, held = settings(policy, columns=columns)
    with TemporaryDirectory() as folder:
        request = FleetRequest(
            patterns=[os.fspath(pattern) for pattern in named],
            folder=Path(folder if output is None else checked_text(output, "output")),
            import_options=import_options,
            criteria=held,
            group_by=checked_texts(group_by, "group_by"),
            like=[os.fspath(one) for one in runs_in(like, "like")],
        )
        result = audit_fleet(request, engine_at(checked_text(engine, "engine"), workers=checked_workers(jobs)))
    return FleetAudit(result if output is not None else replace(result, dataset=""))


def assert_healthy(
    run: RunPath | Run,
    *,
    fail_on: Severity | None = None,
    step: int | None = None,
    columns: Mapping[str, str] | None = None,
    policy: PolicyNamed = None,
    like: RunPath | Run | Sequence[RunPath | Run] = (),
    allow_empty: bool = False,
) -> Audit:
    """Return the audit of a run, or raise an `AssertionError` that shows the whole audit.

    Args:
        run: As in `triage`.
        fail_on: The least severity that fails; None: the severity in the policy, else "sev1".
        step: As in `triage`.
        columns: As in `triage`.
        policy: As in `triage`.
        like: As in `triage`.
        allow_empty: Whether a run in which nothing could be judged passes.

    Raises:
        AssertionError: Where a finding is as severe as `fail_on` or more, or where the run could not be judged, by the rules of
            the command's exit code 2.

    >>> import ckaudit
    >>> ckaudit.assert_healthy("fixtures/runs/healthy", fail_on="sev2").word
    'OK'
    """
    audit = triage(run, step=step, columns=columns, policy=policy, like=like)
    code, reason, _ = reached(audit.report, fail_on, allow_empty=allow_empty)
    if code:
        raise AssertionError("\n".join([repr(audit), *([reason] if reason else []), str(audit)]))
    return audit
