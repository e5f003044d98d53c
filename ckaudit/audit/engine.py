"""The engine: opens a source, judges it, explains it, and makes a report."""

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from msgspec import UNSET, Struct
from msgspec.structs import replace

from ckaudit import __version__
from ckaudit.audit.diagnose import diagnose, first_causes, ranked
from ckaudit.audit.figures import DERIVED, DRAWN, STATE, charts, derived, finding_charts, state
from ckaudit.audit.headline import headline, led_by_headline
from ckaudit.audit.interview import broken_questions, interview, interview_reads
from ckaudit.audit.judge import apply_rules, gravity, judge_answers
from ckaudit.audit.load_run import at_step, is_ours, open_run, open_runs
from ckaudit.audit.response_plan import advised, response
from ckaudit.audit.scale_and_stage import scale_of, stage_of
from ckaudit.audit.vital_checks import judged, to_judge_more, vital_checks
from ckaudit.causes import causes
from ckaudit.contract.check import check_checkpoint
from ckaudit.contract.contradictions import ATTENTION_GRID_RANGE, ATTENTION_ROW_MASS, is_of_other_unit
from ckaudit.contract.io.files import BrokenFile, read_bytes
from ckaudit.contract.io.folder import list_files, list_folder
from ckaudit.contract.schema.import_options import NO_IMPORT_OPTIONS, ImportOptions
from ckaudit.contract.schema.numbers import ignoring_float_errors
from ckaudit.contract.schema.report import SEVERITIES, VERSION, Check, Diagnosis, Finding, PolicyUsed, Report, gravest
from ckaudit.contract.summaries import across_files, same_kind
from ckaudit.contract.violations import UNKNOWN_FIELD, UNKNOWN_WORD, kind
from ckaudit.errors import UsageError
from ckaudit.metrics import Metric
from ckaudit.metrics.gradients import gradient_norm
from ckaudit.metrics.loss import slice_val_loss
from ckaudit.metrics.words import element_type
from ckaudit.plugins import broken as plugin_errors
from ckaudit.policy.acceptance import OPEN, AcceptanceCriteria, SiblingComparison, ended_ignores
from ckaudit.policy.apply_policy import AppliedPolicy, apply_policy
from ckaudit.policy.configure_rules import configured_rules
from ckaudit.policy.policy_schema import PolicyClauses
from ckaudit.questions import questions as all_questions
from ckaudit.questions.bad_answer_table import BAD
from ckaudit.rules import rules
from ckaudit.run.cancelled_gradients import left_out
from ckaudit.run.read import Progress
from ckaudit.run.run import Run
from ckaudit.wording import first_names

BROKEN_PLUGIN = kind(
    "PLUG001",
    "broken_plugin",
    "sev1",
    "A package with rules, causes or metrics does not load.",
    "Update or uninstall the package that is named; the audit is made without it.",
    found_by=("triage",),
)
MAX_RUNS = 40
"""Largest number of runs in one file that are all audited; with more the user names one, or asks for a fleet."""
JUDGED = (None, "nothing", "limited", "all")
"""How much of a run could be judged, from the least on."""
UNREAD_CODES = (UNKNOWN_WORD.code, UNKNOWN_FIELD.code)
"""Codes of content that the reader ignores, because it makes no number wrong."""
LOST_MAP_CODES = tuple(violation.code for violation in (ATTENTION_GRID_RANGE, ATTENTION_ROW_MASS))
"""Notes on attention maps that are lost; the training is judged without them."""


@ignoring_float_errors
def triage(
    path: Path,
    *,
    step: int | None = None,
    import_options: ImportOptions = NO_IMPORT_OPTIONS,
    questions: Collection[int] = (),
    criteria: AcceptanceCriteria = OPEN,
    progress: Progress | None = None,
) -> Report:
    """Audit one run; if a file holds several, all are audited and the most severe report is returned.

    Args:
        path: A run folder, a checkpoint file, or a log that an importer knows.
        step: Judge with what is known at the end of this step; default: the end of the record.
        import_options: Facts that the log of another program lacks, such as which column holds the loss.
        questions: Phases whose questions to answer.
        criteria: Policy and baseline.
        progress: Called with the number of files done and their total.

    Raises:
        UnreadableError: If there is no run.
        UsageError: If `step` is before the record.
    """
    reads = triage_reads() | interview_reads(questions)

    def judge(run: Run) -> Report:
        return triage_run(run, step=step, questions=questions, criteria=criteria)

    if path.is_file() and not import_options.run and not is_ours(path):
        max_runs = MAX_RUNS if criteria.baseline is None else 1  # a baseline belongs to one run
        return gravest_of_runs(open_runs(path, reads=reads, import_options=import_options, max_runs=max_runs), judge)
    return judge(open_judged(path, reads=reads, step=step, import_options=import_options, progress=progress))


def gravest_of_runs(runs: Iterable[tuple[str, Run]], judge: Callable[[Run], Report]) -> Report:
    """Return the report of the most severe run; of equally severe ones the one with most judged, then the later one.

    Args:
        runs: Each run with its name; a single run has an empty name.
        judge: Returns the report of a run.

    Raises:
        UsageError: If no run can be judged as requested, for example at a step before all of them.
    """
    reports: dict[str, Report] = {}
    refused: UsageError | None = None
    for name, run in runs:
        try:
            reports[name] = judge(run)
        except UsageError as error:
            refused = error
    if not reports and refused is not None:
        raise refused
    ranked = sorted(reports, key=lambda name: _rank(reports[name]))
    report = reports[ranked[-1]]
    if len(reports) == 1:
        return report
    which = f"{ranked[-1]}, of {len(reports)} runs"
    verdict = f"{which} the gravest: {report.verdict}" if report.is_ill else f"{which} of which none is ill: {report.verdict}"
    return replace(report, verdict=verdict, notes=[_states_of_runs(reports), *report.notes])


def _rank(report: Report) -> tuple[int, int]:
    """Sort key: a more severe report comes later, then one with more judged."""
    severity = 0 if report.severity is None else len(SEVERITIES) - SEVERITIES.index(report.severity)
    return severity, JUDGED.index(report.judged)


def _states_of_runs(reports: dict[str, Report]) -> str:
    """Return a sentence on the state of each run."""
    kinds: dict[str, list[str]] = {}
    for name, report in reports.items():
        kind = (
            str(report.severity) if report.is_ill else "nothing could be judged" if report.judged == "nothing" else "no illness"
        )
        kinds.setdefault(kind, []).append(name)
    states = "; ".join(f"{kind}: {first_names(names, 6)}" for kind, names in sorted(kinds.items(), reverse=True))
    return (
        f"the file holds {len(reports)} runs, and all were judged: {states}; --run NAME shows one, `ckaudit fleet` all in a table"
    )


def triage_reads() -> frozenset[str]:
    """Return the checkpoint paths that any rule, question, cause or chart reads."""
    wanted: set[Metric] = {*STATE, *DRAWN, *DERIVED}
    for rule in rules().values():
        wanted.update(rule.metrics)
    for cause in causes().values():
        wanted.update(want for want in cause.wants if isinstance(want, Metric))
    for question in all_questions().values():
        wanted.update(question.metrics)
    return frozenset().union(*(metric.paths for metric in wanted))


def open_judged(
    path: Path,
    *,
    reads: Iterable[str],
    step: int | None = None,
    import_options: ImportOptions = NO_IMPORT_OPTIONS,
    progress: Progress | None = None,
) -> Run:
    """Read a run, and check its newest checkpoint until a step against the whole contract."""
    run = open_run(path, reads=reads, import_options=import_options, progress=progress)
    if not len(run.checkpoint_steps) or not is_ours(path):
        return run
    findings = (
        contradiction
        for contradiction in contradictions_of_newest(path, step=step)
        if not is_of_other_unit(contradiction, run.units)
    )
    return replace(run, findings=(*run.findings, *findings))


def contradictions_of_newest(path: Path, *, step: int | None = None, tried: int = 3) -> Iterator[Finding]:
    """Yield the contradictions of the newest readable checkpoint, one finding per kind.

    An unknown field or word is a note: the training is judged without it.

    A faulty writer is faulty in every file, so one file suffices here. `validate` checks all files, and the run's reader reports
    unreadable ones.

    Args:
        path: A run folder or a checkpoint file.
        step: Newest checkpoint until this step; default: of all.
        tried: Number of newest files to try: a writer with unreadable files rarely writes a readable one.
    """
    folder = list_folder(path) if path.is_dir() else list_files([path])
    files = [
        checkpoint
        for checkpoint in folder.checkpoints
        if checkpoint.rank is None and (step is None or (checkpoint.step or 0) <= step)
    ]
    for file in sorted(files, key=lambda file: file.step or 0, reverse=True)[:tried]:
        try:
            checked = check_checkpoint(read_bytes(file.path, file.shown, root=folder.root), file.shown)
        except BrokenFile:
            continue
        if checked.document is not None:
            code = attrgetter("code")
            for _, group in groupby(sorted(_shown_findings(checked.findings), key=code), key=code):
                first, *others = group
                places = [other.where for other in others if other.where]
                yield replace(first, message=first.message + (f" (and {len(others)} more)" if others else ""), also=places)
            return


def _shown_findings(findings: list[Finding]) -> Iterator[Finding]:
    """Yield the findings that a report shows; ignored content becomes a note, except for unknown triggers."""
    for finding in findings:
        if finding.code not in UNREAD_CODES:
            yield from [finding] if finding.severity != "note" or finding.code in LOST_MAP_CODES else []
        elif not (finding.pointer or "").startswith("/triggers/"):
            yield replace(finding, severity="note")


@ignoring_float_errors
def triage_run(
    run: Run, *, step: int | None = None, questions: Collection[int] = (), criteria: AcceptanceCriteria = OPEN
) -> Report:
    """Audit a run in memory."""
    run = at_step(run, step)
    explained = explain_run(run, criteria)
    run, applied = explained.run, explained.applied
    findings, diagnoses = explained.findings, explained.diagnoses
    normal = sum(suppressed.by == "siblings" for suppressed in applied.suppressed)
    answered = interview(run, questions, findings, diagnoses, step=step)
    checks = [*applied.checks, *broken_plugins(), *broken_questions(answered.broken, applied.checks)]
    vital = vital_checks(run, checks)
    comparison = criteria.compare_with_siblings(run)
    hidden = len(applied.suppressed)
    return Report(
        schema_version=VERSION,
        tool=f"ckaudit {__version__}",
        command="triage",
        subject=run.name,
        verdict=headline(checks, diagnoses, findings, run, vital=vital, hidden=hidden, normal=normal),
        severity=gravest(finding.severity for finding in findings),
        judged=judged(vital, checks),
        vital=vital,
        to_judge_more=to_judge_more(run, vital),
        step=run.last_step,
        state=state(run),
        derived=derived(run, findings),
        diagnoses=diagnoses,
        response=response(run, findings, diagnoses),
        findings=findings,
        checks=checks,
        charts=[*charts(run), *finding_charts(run, findings)],
        notes=_notes(run, explained, comparison, criteria),
        files=run.files,
        policy=explained.policy,
        baseline=criteria.baseline.file if criteria.baseline else None,
        suppressed=applied.suppressed,
        stale=applied.stale,
        interview=answered.phases,
        siblings=UNSET if comparison is None else list(comparison.siblings),
    )


def _notes(run: Run, explained: "ExplainedRun", comparison: SiblingComparison | None, criteria: AcceptanceCriteria) -> list[str]:
    """Return the notes on siblings, files, the policy and gradients that are left out."""
    return [
        *(() if comparison is None else comparison.notes),
        *run.notes,
        *ended_ignores(explained.applied.ended, criteria),
        *unrecorded_slices(run, explained.clauses),
        *left_out(gradient_norm(run), run.tensors, element_type(run)),
    ]


class ExplainedRun(Struct, frozen=True):
    """Result of rules, questions and causes for a run.

    Attributes:
        run: The run, with the slices that its policy names.
        clauses: The policy's clauses for it.
        policy: The policy as shown in a report; None if there is none.
        applied: All findings, and those that count.
        findings: Findings that count, most severe first, with advice.
        diagnoses: Its causes, in the order of the report.
    """

    run: Run
    clauses: PolicyClauses
    policy: PolicyUsed | None
    applied: AppliedPolicy
    findings: list[Finding]
    diagnoses: list[Diagnosis]


@ignoring_float_errors
def explain_run(run: Run, criteria: AcceptanceCriteria = OPEN) -> ExplainedRun:
    """Judge a run in memory and weigh the causes of its findings, without charts and interview."""
    clauses, used = clauses_of(run, criteria)
    run = with_slices(run, clauses)
    applied = judge_run(run, clauses, criteria)
    findings = sorted(across_files(applied.findings, same_kind), key=gravity)
    hidden = [suppressed.finding for suppressed in applied.suppressed]
    likely = first_causes(diagnose(run, findings, causes().values(), accepted=hidden), findings, run)
    diagnoses = led_by_headline(likely, findings)
    return ExplainedRun(run, clauses, used, applied, advised(ranked(findings, run), diagnoses), diagnoses)


def clauses_of(run: Run, criteria: AcceptanceCriteria) -> tuple[PolicyClauses, PolicyUsed | None]:
    """Return the policy's clauses for a run of its scale and stage; the run's own facts count if the policy has none."""
    if criteria.policy is None:
        return criteria.at()
    return criteria.at(scale_of(run).word, stage_of(run).word)


def with_slices(run: Run, clauses: PolicyClauses) -> Run:
    """Return a run with the slices of tau from the policy; those of the command line take precedence."""
    if clauses.tau_slices is None or run.tau_slices is not None:
        return run
    return run.with_slices(clauses.tau_slices)


@ignoring_float_errors
def judge_run(run: Run, clauses: PolicyClauses, criteria: AcceptanceCriteria) -> AppliedPolicy:
    """Apply the policy's rules and the questions, and sort the findings into those that count and those that are accepted.

    A question is listed among the checks only if it made a finding or crashed.
    """
    judging, disabled = configured_rules(rules().values(), clauses)
    judgement = apply_rules(run, judging)
    answered = judge_answers(run, (*run.findings, *judgement.findings), clauses)
    comparison = criteria.compare_with_siblings(run) or SiblingComparison()
    findings = ranked((*run.findings, *judgement.findings, *answered.findings, *comparison.findings), run)
    checks = sorted((*judgement.checks, *disabled, *answered.checks, *comparison.checks), key=lambda check: check.code)
    applied = apply_policy(
        findings, checks, today=criteria.today, clauses=clauses, baseline=criteria.baseline, why_normal=comparison.why_normal
    )
    listed = [
        check
        for check in applied.checks
        if check.code not in BAD or check.findings or check.suppressed or check.outcome == "error"
    ]
    return replace(applied, checks=listed)


def broken_plugins() -> list[Check]:
    """Return a failed check for each plugin that did not load, because the audit is not complete without its rules."""
    kind_ = BROKEN_PLUGIN
    return [
        Check(code=kind_.code, name=kind_.name, title=kind_.title, severity=kind_.severity, outcome="error", detail=str(error))
        for error in plugin_errors()
    ]


def unrecorded_slices(run: Run, clauses: PolicyClauses) -> list[str]:
    """Return a note on the slices that the policy watches and the run does not record."""
    recorded = slice_val_loss(run)
    known = {label.rpartition("/")[2] for label in recorded.labels} if recorded else set()
    missing = [name for name in clauses.slices or () if name not in known]
    return [f"the policy watches {', '.join(missing)}, of which no slice_val_loss is recorded"] if missing else []
