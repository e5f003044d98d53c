"""The autopsy of an event: what happened in the steps before it, in the order of time, and what was back afterwards."""

from collections.abc import Sequence
from pathlib import Path

from ckaudit.audit.autopsy.after_event import returns
from ckaudit.audit.autopsy.batch import batches
from ckaudit.audit.autopsy.files import EventFile, chosen, event_files, event_triggers
from ckaudit.audit.autopsy.flight_recorder import channels
from ckaudit.audit.autopsy.history_from_record import channels_of_record, rebuilt
from ckaudit.audit.autopsy.narrative import departures, is_notable, moments, onset_of, standing_of, tracks
from ckaudit.audit.autopsy.ranges import Channel
from ckaudit.audit.autopsy.result import Autopsy, Departure, EventName, Moment
from ckaudit.audit.load_run import open_run
from ckaudit.audit.report import triage_run
from ckaudit.contract.float_overflow import takes_any_numbers
from ckaudit.contract.report import Finding, Report
from ckaudit.errors import UsageError
from ckaudit.metrics import metrics
from ckaudit.policy.gate import OPEN, Gate
from ckaudit.run.read import Progress
from ckaudit.run.run import Run

__all__ = ["Autopsy", "autopsy"]


def autopsy(path: Path, *, event: int | None = None, gate: Gate = OPEN, progress: Progress | None = None) -> Autopsy:
    """Say what happened before an event.

    Args:
        path: A run folder, or one event checkpoint.
        event: The step of the event, or of its checkpoint; None: the last event.
        gate: Which policy holds.
        progress: Called with files done and files in all.

    Raises:
        UnreadableError: Where there is no run.
        UsageError: Where there is no such event.
    """
    reads = frozenset[str]().union(*(metric.paths for metric in metrics().values()))
    run = open_run(path, reads=reads, progress=progress)
    if not len(run.checkpoint_steps):
        raise UsageError(f"{run.name} has no checkpoints", hint="An event is told from the checkpoint that it asked for.")
    files = event_files(path)
    return autopsy_of(run, files, chosen(files, event), gate=gate)


@takes_any_numbers
def autopsy_of(run: Run, files: Sequence[EventFile], file: EventFile, *, gate: Gate = OPEN) -> Autopsy:
    """Say the same of a run that is in memory, and one of its checkpoints."""
    name = file.name
    history = file.history if file.has_box and file.history else rebuilt(run, name.event_step)
    found = channels(history) if file.has_box else channels_of_record(run, history)
    report = triage_run(run, gate=gate)
    out = [*departures(history, found), *batches(run, history, report.findings)]
    standing = standing_of(out)
    moved = [each for each in out if not each.since_start]
    onset = onset_of(history.steps, moved, name.event_step)
    if onset is None and standing:
        moved, onset = out, history.steps[0]
    told = moments(moved, onset, run.tensors)
    inside = _findings(report, onset if onset is not None else name.event_step, name.event_step)
    codes = {each.code for each in inside}
    return Autopsy(
        subject=run.name,
        event=name,
        boxed=file.has_box,
        verdict=verdict(name, told, found, box="black box" if file.has_box else "record"),
        steps=tuple(history.steps),
        onset=onset,
        moments=told,
        standing=standing,
        earlier=tuple(_earlier(moved, name.event_step if onset is None else onset)),
        tensors=sum(each.kind == "gradient" for each in found),
        tracks=tuple(tracks(history, found, out, told)),
        returns=tuple(returns(run, files, told, name.event_step)),
        findings=tuple(inside),
        diagnoses=tuple(each for each in report.diagnoses if codes & set(each.explains)),
        others=tuple(each.name for each in files if each.step != file.step and each.event_step != file.event_step),
        notes=tuple(report.notes),
        files=run.files,
    )


def _earlier(moved: Sequence[Departure], onset: int) -> list[int]:
    """Return the steps before the onset at which more than noise left its range."""
    steps = sorted({each.step for each in moved if each.step < onset})
    return [step for step in steps if is_notable([each for each in moved if each.step == step])]


def _findings(report: Report, first: int, event: int, *, late: int = 5) -> list[Finding]:
    """Return the findings whose steps meet those from the onset to shortly after the event: the first of each rule leads."""
    found = [
        each
        for each in report.findings
        if each.first_step is not None
        and each.first_step <= event + late
        and (each.first_step if each.last_step is None else each.last_step) >= first
    ]
    leading = {each.code: each for each in reversed(found)}
    return [*(each for each in found if leading[each.code] is each), *(each for each in found if leading[each.code] is not each)]


def verdict(event: EventName, told: Sequence[Moment], found: Sequence[Channel], *, box: str = "black box") -> str:
    """Return in one sentence what went first, and what followed at the event."""
    triggers = ", ".join(event_triggers(event)) or "no trigger is named"
    asked = f"the event at step {event.event_step} ({triggers})"
    if not told:
        short = "" if any(len(each.values) >= 8 for each in found) else f": the {box} is too short to know what is usual"
        return f"Nothing in the {box} left its own range before {asked}{short}"
    first = told[0]
    lead = said(first.departures[0])
    same = [each for each in first.departures[1:] if each.kind == first.departures[0].kind != "batch"]
    more = f", with {len(same)} more of {sum(each.kind == first.departures[0].kind for each in found)}" if same else ""
    since = f"from the first step of the {box} on" if first.departures[0].since_start else f"at step {first.step}"
    before = event.event_step - first.step
    ahead = (
        f", {before} step{'s' if before > 1 else ''} before {asked}"
        if before > 0
        else f", the step of the event itself ({triggers})"
    )
    return f"First {lead} {since}{more}{ahead}"


NAMES = {
    "batch": "the batch",
    "loss": "the loss",
    "gradient_norm": "the global gradient norm",
    "learning_rate": "the learning rate",
    "gradient": "the gradient of",
    "update": "the update of",
}


def said(each: Departure) -> str:
    """Return what left its range and how, in words.

    >>> said(Departure(step=5, kind="loss", name="", how="above", value=4.0, usual=2.0, times=2.0))
    'the loss goes to 4, 2 times its median of 2'
    """
    what = f"{NAMES[each.kind]} {each.name}".rstrip()
    if each.kind == "batch":
        return _of_batch(what, each)
    value = each.value if isinstance(each.value, str) else f"{each.value:.4g}"
    if each.how in ("not_finite", "dead"):
        return f"{what} is {value}"
    if each.how == "changed":
        return f"{what} goes from {each.usual:.4g} to {value}"
    usual, times = each.usual or 0.0, each.times or 0.0
    if each.how == "below":
        return f"{what} falls to {value} from a median of {usual:.4g}"
    return f"{what} goes to {value}, {times:.3g} times its median of {usual:.4g}"


def _of_batch(what: str, each: Departure) -> str:
    if each.how == "empty":
        return f"{what} holds no token to learn from (others hold {each.usual:.0f})"
    if each.how == "unlike":
        far = f" ({each.value:.2g} nats from that of the first)" if isinstance(each.value, float) else ""
        return f"{what} holds text of another kind{far}"
    return f"{what} is one of {each.times:.0f} steps before"
