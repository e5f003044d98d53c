"""The autopsy of an event: what left its normal range before it, in order of time, and what came back afterwards."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from msgspec import UNSET

from ckaudit.audit.autopsy.black_box import (
    Channel,
    EventFile,
    channels,
    channels_of_record,
    event_checkpoint,
    event_files,
    event_triggers,
    rebuilt_black_box,
)
from ckaudit.audit.autopsy.departures import (
    RANGES,
    abnormal_from_the_start,
    departures,
    is_back_in_range,
    is_notable,
    moments,
    onset_of,
    timeline_rows,
)
from ckaudit.audit.autopsy.result import KINDS, Autopsy, Departure, EventName, Kind, Moment, Return
from ckaudit.audit.engine import triage_run
from ckaudit.audit.load_run import open_run
from ckaudit.contract.schema.checkpoint import History
from ckaudit.contract.schema.numbers import ignoring_float_errors
from ckaudit.contract.schema.report import Finding, Report
from ckaudit.errors import UsageError
from ckaudit.metrics import metrics
from ckaudit.metrics.gradients import grad_global_norm, gradient_norm
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.metric import Metric
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.progress import tokens_seen
from ckaudit.metrics.weights import update_norm
from ckaudit.policy.acceptance import OPEN, AcceptanceCriteria
from ckaudit.rules.data.token_drift import token_drift
from ckaudit.run.medians import median
from ckaudit.run.read import Progress
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Series, Steps, at

__all__ = ["Autopsy", "autopsy"]

LOGGED: dict[Kind, Metric] = {
    "loss": train_loss_raw,
    "gradient_norm": grad_global_norm,
    "learning_rate": learning_rate,
    "gradient": gradient_norm,
    "update": update_norm,
}


def autopsy(
    path: Path, *, event: int | None = None, criteria: AcceptanceCriteria = OPEN, progress: Progress | None = None
) -> Autopsy:
    """Return what happened before an event.

    Args:
        path: A run folder, or one event checkpoint.
        event: The step of the event, or of its checkpoint; None: the last event.
        criteria: The policy and baseline to apply.
        progress: Called with the number of files done and their total.

    Raises:
        UnreadableError: If there is no run.
        UsageError: If there is no such event.
    """
    reads = frozenset[str]().union(*(metric.paths for metric in metrics().values()))
    run = open_run(path, reads=reads, progress=progress)
    if not len(run.checkpoint_steps):
        raise UsageError(f"{run.name} has no checkpoints", hint="An event is told from the checkpoint that it asked for.")
    files = event_files(path)
    return autopsy_of(run, files, event_checkpoint(files, event), criteria=criteria)


@ignoring_float_errors
def autopsy_of(run: Run, files: Sequence[EventFile], file: EventFile, *, criteria: AcceptanceCriteria = OPEN) -> Autopsy:
    """Return the autopsy of an event in a run in memory, given the checkpoint of the event."""
    name = file.name
    history = file.history if file.has_box and file.history else rebuilt_black_box(run, name.event_step)
    box_channels = channels(history) if file.has_box else channels_of_record(run, history)
    report = triage_run(run, criteria=criteria)
    out = [*departures(history, box_channels), *batches(run, history, report.findings)]
    standing = abnormal_from_the_start(out)
    moved, onset = _moved_since(out, history.steps, name.event_step)
    story = moments(moved, onset, run.tensors)
    inside = _findings(report, onset if onset is not None else name.event_step, name.event_step)
    codes = {finding.code for finding in inside}
    return Autopsy(
        subject=run.name,
        event=name,
        boxed=file.has_box,
        verdict=verdict(name, story, box_channels, box="black box" if file.has_box else "record"),
        steps=tuple(history.steps),
        onset=onset,
        moments=story,
        standing=standing,
        earlier=tuple(_earlier(moved, name.event_step if onset is None else onset)),
        tensors=sum(channel.kind == "gradient" for channel in box_channels),
        tracks=tuple(timeline_rows(history, box_channels, out, story)),
        returns=tuple(recoveries(run, files, story, name.event_step)),
        findings=tuple(inside),
        diagnoses=tuple(diagnosis for diagnosis in report.diagnoses if codes & set(diagnosis.explains)),
        others=tuple(other.name for other in files if other.step != file.step and other.event_step != file.event_step),
        notes=tuple(report.notes),
        files=run.files,
    )


def _moved_since(out: Sequence[Departure], steps: Sequence[int], event_step: int) -> tuple[list[Departure], int | None]:
    """Return the departures from the onset on, and the onset; if everything was out of range from the start, the first step."""
    moved = [departure for departure in out if not departure.since_start]
    onset = onset_of(steps, moved, event_step)
    return (list(out), steps[0]) if onset is None and abnormal_from_the_start(out) else (moved, onset)


def _earlier(moved: Sequence[Departure], onset: int) -> list[int]:
    """Return the steps before the onset at which more than noise left its range."""
    steps = sorted({departure.step for departure in moved if departure.step < onset})
    return [step for step in steps if is_notable([departure for departure in moved if departure.step == step])]


def _findings(report: Report, first: int, event: int, *, late: int = 5) -> list[Finding]:
    """Return the findings that overlap the steps from the onset to shortly after the event, the first of each rule leading."""
    findings = [
        finding
        for finding in report.findings
        if finding.first_step is not None
        and finding.first_step <= event + late
        and (finding.first_step if finding.last_step is None else finding.last_step) >= first
    ]
    leading = {finding.code: finding for finding in reversed(findings)}
    return [
        *(finding for finding in findings if leading[finding.code] is finding),
        *(finding for finding in findings if leading[finding.code] is not finding),
    ]


def verdict(event: EventName, story: Sequence[Moment], box_channels: Sequence[Channel], *, box: str = "black box") -> str:
    """Return a sentence on what left its range first and what followed at the event."""
    triggers = ", ".join(event_triggers(event)) or "no trigger is named"
    asked = f"the event at step {event.event_step} ({triggers})"
    if not story:
        short = (
            "" if any(len(channel.values) >= 8 for channel in box_channels) else f": the {box} is too short to know what is usual"
        )
        return f"Nothing in the {box} left its own range before {asked}{short}"
    first = story[0]
    lead = departure_text(first.departures[0])
    same = [departure for departure in first.departures[1:] if departure.kind == first.departures[0].kind != "batch"]
    more = (
        f", with {len(same)} more of {sum(channel.kind == first.departures[0].kind for channel in box_channels)}" if same else ""
    )
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


def departure_text(departure: Departure) -> str:
    """Return in words what left its range, and how.

    >>> departure_text(Departure(step=5, kind="loss", name="", how="above", value=4.0, usual=2.0, times=2.0))
    'the loss goes to 4, 2 times its median of 2'
    """
    what = f"{NAMES[departure.kind]} {departure.name}".rstrip()
    if departure.kind == "batch":
        return _batch_sentence(what, departure)
    value = departure.value if isinstance(departure.value, str) else f"{departure.value:.4g}"
    if departure.how in ("not_finite", "dead"):
        return f"{what} is {value}"
    if departure.how == "changed":
        return f"{what} goes from {departure.usual:.4g} to {value}"
    usual, times = departure.usual or 0.0, departure.times or 0.0
    if departure.how == "below":
        return f"{what} falls to {value} from a median of {usual:.4g}"
    return f"{what} goes to {value}, {times:.3g} times its median of {usual:.4g}"


def _batch_sentence(what: str, departure: Departure) -> str:
    if departure.how == "empty":
        return f"{what} holds no token to learn from (others hold {departure.usual:.0f})"
    if departure.how == "unlike":
        far = f" ({departure.value:.2g} nats from that of the first)" if isinstance(departure.value, float) else ""
        return f"{what} holds text of another kind{far}"
    return f"{what} is one of {departure.times:.0f} steps before"


# Numbers that came back into range after the event, and when.
def recoveries(run: Run, files: Sequence[EventFile], story: Sequence[Moment], event: int) -> Iterator[Return]:
    """Yield whether and when each number that left its range comes back inside it later in the run."""
    boxes = [(file.history.steps, channels(file.history)) for file in files if file.history and file.history.steps[-1] > event]
    left = {
        (departure.kind, departure.name): departure
        for moment in story
        for departure in moment.departures
        if departure.kind != "batch"
    }
    for departure in sorted(left.values(), key=lambda departure: KINDS.index(departure.kind)):
        later = dict(_logged(run, departure, event))
        for steps, box_channels in boxes:
            match = next(
                (channel for channel in box_channels if (channel.kind, channel.name) == (departure.kind, departure.name)), None
            )
            if match is not None:
                later |= {step: value for step, value, known in zip(steps, match.values, match.recorded, strict=True) if known}
        steps_after = sorted(step for step in later if step > event)
        yield _recovery(departure, np.array(steps_after, np.int64), np.array([later[step] for step in steps_after]))


def _recovery(departure: Departure, steps: Steps, values: Floats, *, lasting: int = 3) -> Return:
    """Return the first of `lasting` consecutive steps that are back in range, or of as many as remain."""
    back = is_back_in_range(values, departure.usual, RANGES[departure.kind].above)
    start = next((row for row in range(len(back)) if back[row : row + lasting].all()), None)
    step = None if start is None else int(steps[start])
    return Return(kind=departure.kind, name=departure.name, step=step, seen_until=int(steps[-1]) if len(steps) else None)


def _logged(run: Run, departure: Departure, event: int) -> Iterator[tuple[int, float]]:
    series: Series = LOGGED[departure.kind](run)
    label = departure.name or (series.labels[0] if series.labels else "")
    if label not in series.places:
        return
    column = series.places[label]
    rows = np.flatnonzero(series.recorded[:, column] & (series.steps > event))
    yield from zip(series.steps[rows].tolist(), series.values[rows, column].tolist(), strict=True)


# Faulty batches: those without targets, and those unlike the batches before.
def batches(run: Run, history: History, findings: Iterable[Finding]) -> Iterator[Departure]:
    """Yield the black box's batches without any counted token, and those with a different kind of text.

    Args:
        run: Holds the count of tokens.
        history: The black box.
        findings: Findings of triage; notes do not count.
    """
    names: dict[int, str] = {}
    if history.batch_hash is not UNSET and len(history.batch_hash) == len(history.steps):
        names = {step: word for step, word in zip(history.steps, history.batch_hash, strict=True) if word}
    for step, usual in _empty(tokens_seen(run), history.steps):
        yield Departure(step=step, kind="batch", name=names.get(step, ""), how="empty", value=0.0, usual=usual)
    for finding in findings:
        if finding.code == token_drift.code and finding.severity != "note" and finding.first_step in history.steps:
            step = int(finding.first_step or 0)
            yield Departure(step=step, kind="batch", name=names.get(step, ""), how="unlike", value=finding.value)


def _empty(tokens: Series, steps: list[int], *, rare: float = 0.2) -> Iterator[tuple[int, float]]:
    """Yield the steps that add no token, and how many tokens the others add.

    Only steps whose predecessor is logged as well count. If more than `rare` of them add nothing, the count is not updated at
    every step.
    """
    if not tokens or len(steps) < 2:
        return
    known = at(tokens, np.array([steps[0] - 1, *steps], np.int64))
    is_recorded = (known.age[:, 0] == 0) & np.isfinite(known.values[:, 0])
    rows = [row for row in range(1, len(is_recorded)) if is_recorded[row] and is_recorded[row - 1]]
    added = {steps[row - 1]: float(known.values[row, 0] - known.values[row - 1, 0]) for row in rows}
    none = [step for step, count in added.items() if count == 0]
    if none and len(none) <= rare * len(added):
        usual = median([count for count in added.values() if count != 0])
        yield from ((step, usual) for step in none)
