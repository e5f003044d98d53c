"""The results of a drill's trainings: whether a fault is found, when and as what, or which line of code would reveal it."""

from collections.abc import Callable, Sequence
from statistics import median
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ckaudit.contract.io.files import SCALARS_NAME
from ckaudit.contract.schema.report import Finding, Report, Severity
from ckaudit.errors import UnreadableError
from ckaudit.lab.drill.trainings import DrillPlan, End, Trained
from ckaudit.lab.wild.pair import is_worse, logged, twin_learns
from ckaudit.lab.wild.score import counting_findings
from ckaudit.recorder.drill.settings import KINDS, FaultKind
from ckaudit.run.run import Run

LOSS = "train_loss_raw"
Word = Literal["found", "missed", "harmless", "crashed", "not_done"]


class Seen(Struct, frozen=True, kw_only=True):
    """One finding.

    Attributes:
        code: Code of the rule.
        name: Name of the rule.
        severity: sev0, sev1 or sev2.
        first_step: First step of the finding; null: it is about the whole run.
        where: Tensor, block or scalar; null: it has no place.
        message: Message of the finding.
    """

    code: str
    name: str
    severity: Severity
    first_step: int | None
    where: str | None
    message: str


class HealthyOutcome(Struct, frozen=True, kw_only=True):
    """A healthy training.

    Attributes:
        name: healthy-1 or healthy-2.
        steps: Steps that it took.
        loss: Median training loss of its last tenth; null: none was recorded.
        findings: Findings of sev0 to sev2: each is a false alarm, or a real illness of the training.
    """

    name: str
    steps: int
    loss: float | None
    findings: tuple[Seen, ...] = ()


class FaultOutcome(Struct, frozen=True, kw_only=True):
    """A training with a fault.

    Attributes:
        fault: Name of the fault.
        title: Short description.
        truth: The cause that should be named.
        outcome: Found; missed although it had an effect; harmless, without effect and without a finding; crashed, if the program
            stopped and nothing else was found; or not done.
        reason: Why it was not done, or the program's message when it crashed; empty: neither.
        onset: First step at which the fault acted, in the steps of the record; null: it did not.
        place: The module that was changed; empty: the whole model, or none.
        steps: Steps that the training took.
        end: Whether the drill ended it after its steps, the script ended earlier, or it crashed.
        loss: Median training loss of its last tenth; null: none was recorded.
        is_worse: Whether its loss ends above that of both healthy trainings, beyond their noise.
        is_fact: Whether weights, gradients or code were changed, which a record shows even if the loss does not.
        seen_step: First step after which an audit of the record reports it; null: none does.
        delay: Steps from the onset to that step; null: it was not found.
        finding: The finding that reports it; null: it was not found.
        cause: The likeliest cause at the end; null: none is named.
        is_cause_right: Whether that is the truth, or an equivalent cause.
        remedy: The line of code that would reveal it, with the checks that it enables; empty: nothing is missing.
    """

    fault: str
    title: str
    truth: str
    outcome: Word
    reason: str = ""
    onset: int | None = None
    place: str = ""
    steps: int = 0
    end: End = "steps"
    loss: float | None = None
    is_worse: bool = False
    is_fact: bool = False
    seen_step: int | None = None
    delay: int | None = None
    finding: Seen | None = None
    cause: str | None = None
    is_cause_right: bool = False
    remedy: str = ""


class DrillReport(Struct, frozen=True, kw_only=True):
    """The report of a drill.

    Attributes:
        command: The command that trained.
        steps: Steps asked for.
        onset: First step of faults that come in the middle.
        strength: Strength of the faults, from 0 to 1.
        seed: Seed of the faults' random numbers.
        is_repeatable: Whether the two healthy trainings have the same losses.
        learns: Whether their loss falls by more than noise; otherwise no fault shows in it.
        to_judge_more: The line of code that would enable most of the open vital checks; null: none is open.
        healthy: The healthy trainings.
        faults: The trainings with a fault, in the order in which they were asked for.
    """

    command: tuple[str, ...]
    steps: int
    onset: int
    strength: float
    seed: int
    is_repeatable: bool
    learns: bool
    to_judge_more: str | None
    healthy: tuple[HealthyOutcome, ...]
    faults: tuple[FaultOutcome, ...]

    def of(self, *words: Word) -> list[FaultOutcome]:
        """Return the faults with one of these outcomes."""
        return [fault for fault in self.faults if fault.outcome in words]

    @property
    def is_flagged(self) -> bool:
        """Whether a healthy training has a finding."""
        return any(healthy.findings for healthy in self.healthy)

    @property
    def is_clean(self) -> bool:
        """Whether every fault with an effect was found, and the healthy trainings have no finding."""
        return not self.is_flagged and not self.of("missed")


def judged(plan: DrillPlan, trained: Sequence[Trained], *, progress: Callable[[int, int], object] | None = None) -> DrillReport:
    """Audit every training of a drill.

    Args:
        plan: The plan of the drill.
        trained: The completed trainings, the healthy ones first.
        progress: Called with the number of judged trainings and of all trainings.
    """
    healthy = [DrillRecording(training) for training in trained[:2]]
    outcomes = []
    for count, training in enumerate(trained[2:], 1):
        outcomes.append(_fault_outcome(plan, training, healthy))
        if progress:
            progress(count + 2, len(trained))
    losses = [record.losses for record in healthy]
    return DrillReport(
        command=plan.command,
        steps=plan.steps,
        onset=plan.onset,
        strength=plan.strength,
        seed=plan.seed,
        is_repeatable=losses[0] == losses[1],
        learns=bool(losses[0]) and twin_learns(healthy[0].trained.folder),
        to_judge_more=healthy[0].report().to_judge_more,
        healthy=tuple(_healthy_outcome(record) for record in healthy),
        faults=tuple(outcomes),
    )


class DrillRecording:
    """The record of one training, and the results of its audits so far."""

    def __init__(self, trained: Trained) -> None:
        self.trained = trained
        self._run: Run | None = None
        self._reports: dict[int | None, Report] = {}

    @property
    def losses(self) -> list[float]:
        """Its training losses."""
        return logged(self.trained.folder, LOSS) if (self.trained.folder / SCALARS_NAME).exists() else []

    @property
    def loss(self) -> float | None:
        """The median training loss of its last tenth; None: none was recorded."""
        losses = self.losses
        return median(losses[-max(1, len(losses) // 10) :]) if losses else None

    @property
    def run(self) -> Run:
        """The run in memory, with everything that a check or the coverage reads."""
        if self._run is None:
            from ckaudit.audit.engine import open_judged, triage_reads
            from ckaudit.metrics import metrics

            reads = triage_reads().union(*(metric.paths for metric in metrics().values()))
            self._run = open_judged(self.trained.folder, reads=reads)
        return self._run

    def report(self, step: int | None = None) -> Report:
        """Return the audit of the record in its state at a step, or at its end."""
        if step not in self._reports:
            from ckaudit.audit.engine import triage_run

            self._reports[step] = triage_run(self.run, step=step)
        return self._reports[step]

    def codes(self, step: int | None = None) -> set[str]:
        """Return the codes of the findings that count at a step."""
        return {finding.code for finding in counting_findings(self.report(step), 0)}


def _healthy_outcome(record: DrillRecording) -> HealthyOutcome:
    return HealthyOutcome(
        name=record.trained.name,
        steps=record.trained.note.done,
        loss=record.loss,
        findings=tuple(_seen(finding) for finding in counting_findings(record.report(), 0)),
    )


def _fault_outcome(plan: DrillPlan, trained: Trained, healthy: Sequence[DrillRecording]) -> FaultOutcome:
    kind, note, record = KINDS[trained.name], trained.note, DrillRecording(trained)
    outcome = FaultOutcome(
        fault=trained.name,
        title=kind.title,
        truth=kind.truth,
        outcome="not_done",
        reason=note.why_not,
        place=note.place,
        steps=note.done,
        end=trained.end,
        loss=record.loss,
        is_fact=kind.is_fact,
    )
    onset = note.first + (plan.onset if kind.sudden else 1) - 1
    is_done = not note.why_not and (note.acted is not None or trained.end == "crash")
    if not is_done:
        return replace(outcome, reason=note.why_not or f"the training ended after {note.done} steps, before it was done")
    worse = bool(record.losses) and all(is_worse(trained.folder, twin.trained.folder) for twin in healthy)
    outcome = replace(outcome, onset=onset, is_worse=worse or trained.end == "crash")
    try:
        return _with_findings(outcome, kind, record, healthy)
    except UnreadableError:
        return _without_findings(outcome, kind, None, trained.stderr)


def _with_findings(
    outcome: FaultOutcome, kind: FaultKind, record: DrillRecording, healthy: Sequence[DrillRecording]
) -> FaultOutcome:
    onset = outcome.onset or 0
    since = onset if kind.sudden else 0  # a fault from the start shows at step 0 already
    report = record.report()
    usual = set().union(*(twin.codes() for twin in healthy))
    if not [finding for finding in counting_findings(report, since) if finding.code not in usual]:
        return _without_findings(outcome, kind, record, record.trained.stderr)
    step = _first_seen(record, healthy, since, max(onset, 1))
    finding = _new(record, healthy, since, step)[0]
    first = report.diagnoses[0].cause if report.diagnoses else None
    return replace(
        outcome,
        outcome="found",
        seen_step=step,
        delay=max(0, step - onset),
        finding=_seen(finding),
        cause=first,
        is_cause_right=first in (kind.truth, *kind.acceptable),
    )


def _without_findings(outcome: FaultOutcome, kind: FaultKind, record: DrillRecording | None, output: str) -> FaultOutcome:
    if outcome.end == "crash":
        return replace(outcome, outcome="crashed", reason=output.splitlines()[-1] if output else "it said nothing")
    if not (outcome.is_worse or outcome.is_fact):
        return replace(outcome, outcome="harmless")
    return replace(outcome, outcome="missed", remedy=remedy_of(kind, record.run) if record else "")


def _new(record: DrillRecording, healthy: Sequence[DrillRecording], since: int, step: int) -> list[Finding]:
    """Return the findings that count at a step and that no healthy training had at that step."""
    last = [twin.run.last_step or 0 for twin in healthy]
    usual = set[str]().union(*(twin.codes() | twin.codes(min(step, end)) for twin, end in zip(healthy, last, strict=True)))
    return [finding for finding in counting_findings(record.report(step), since) if finding.code not in usual]


def _first_seen(record: DrillRecording, healthy: Sequence[DrillRecording], since: int, onset: int) -> int:
    """Return the first step after which something new is reported; reported findings are assumed to persist."""
    last = record.run.last_step or onset
    low, high = min(onset, last), last
    while low < high:
        middle = (low + high) // 2
        if _new(record, healthy, since, middle):
            high = middle
        else:
            low = middle + 1
    return low


def remedy_of(kind: FaultKind, run: Run) -> str:
    """Return the line of code that would reveal a missed fault, by a check that its cause explains; empty: no check lacks data.

    Args:
        kind: The fault.
        run: The record in which it was missed.
    """
    from ckaudit.audit.coverage.recorded import lines_for_check
    from ckaudit.audit.judge import apply_rules
    from ckaudit.causes import causes
    from ckaudit.rules import rules

    explained = [causes()[name].explains for name in (kind.truth, *kind.acceptable) if name in causes()]
    checks = {check.code: check for check in apply_rules(run, rules().values()).checks}
    asked = [checks[code] for code in dict.fromkeys(sign.code for signs in explained for sign in signs) if code in checks]
    for check in asked:
        lines, is_waiting = lines_for_check(run, check.code)
        if lines:
            named = f"{check.code} {check.name}"
            return f"{'; '.join(lines)} " + (f"lets {named} judge" if is_waiting else f"gives {named} more to judge by")
    young = next((check for check in asked if check.reason == "too_few_points"), None)
    return f"a longer drill (--steps) lets {young.code} {young.name} judge: {young.detail}" if young else ""


def _seen(finding: Finding) -> Seen:
    return Seen(
        code=finding.code,
        name=finding.name,
        severity=finding.severity,
        first_step=finding.first_step,
        where=finding.where,
        message=finding.message,
    )
