"""From single steps out of range to what happened: where it began, what went first, and what stood in the box before."""

from collections.abc import Iterator, Sequence

import numpy as np

from ckaudit.audit.autopsy.flight_recorder import distances, repeats
from ckaudit.audit.autopsy.ranges import Channel, outs
from ckaudit.audit.autopsy.result import KINDS, Departure, Moment, Track
from ckaudit.contract.schema.checkpoint import History
from ckaudit.run.tensors import TensorTable

HOW_GRAVE = ("not_finite", "dead", "empty", "unlike", "repeated", "changed", "above", "below")
STANDING = ("not_finite", "dead")


def departures(history: History, channels: Sequence[Channel]) -> list[Departure]:
    """Return everything out of its range at any step of the box."""
    steps = history.steps
    made = []
    for channel in channels:
        rows = np.flatnonzero(channel.recorded).tolist()
        for place, out in enumerate(outs(channel)):
            standing = out.how in STANDING and out.row == rows[place]  # so were all recorded steps before it
            made.append(
                Departure(
                    step=steps[out.row],
                    kind=channel.kind,
                    name=channel.name,
                    how=out.how,
                    value=channel.words[out.row],
                    usual=out.usual,
                    times=out.times,
                    since_start=standing,
                )
            )
    apart = distances(history)
    made += [
        Departure(step=steps[row], kind="batch", name="", how="repeated", times=float(apart[row] or 0)) for row in repeats(apart)
    ]
    return made


def standing_of(out: Sequence[Departure]) -> tuple[Departure, ...]:
    """Return what was dead or no number since the first step that the box has of it."""
    first: dict[tuple[str, str], Departure] = {}
    for departure in out:
        if departure.since_start:
            first.setdefault((departure.kind, departure.name), departure)
    return tuple(first.values())


def onset_of(steps: Sequence[int], out: Sequence[Departure], event: int, *, quiet: int = 5) -> int | None:
    """Return the step at which what led to the event began, None where nothing near it was out of range.

    Steps out of range belong together where fewer than `quiet` steps of the box lie between them. A single tensor a little
    out of its range is noise: among dozens of tensors one always is.
    """
    notable = {step for step in steps if is_notable([departure for departure in out if departure.step == step])}
    places = sorted({steps.index(step) for step in notable if step <= event}, reverse=True)
    last = max((row for row, step in enumerate(steps) if step <= event), default=-1)
    onset = None
    for row in places:
        if last - row > quiet:
            break
        onset, last = steps[row], row
    return onset


def is_notable(out: Sequence[Departure], *, far: float = 5.0, several: int = 3) -> bool:
    """Tell whether a step is more than noise: a number of the run itself, several tensors, or one that is far out."""
    tensors = [departure for departure in out if departure.kind in ("gradient", "update")]
    return (
        len(tensors) < len(out)
        or len(tensors) >= several
        or any(
            tensor.how in STANDING or (tensor.times is not None and max(tensor.times, 1 / tensor.times) >= far)
            for tensor in tensors
        )
    )


def moments(out: Sequence[Departure], onset: int | None, table: TensorTable) -> tuple[Moment, ...]:
    """Return what left its range from the onset on, step by step; only the first step of each number counts."""
    if onset is None:
        return ()
    first: dict[tuple[str, str, str], Departure] = {}
    for departure in sorted(out, key=lambda each: each.step):
        if departure.step >= onset:
            first.setdefault((departure.kind, departure.name, departure.how if departure.kind == "batch" else ""), departure)
    steps = sorted({departure.step for departure in first.values()})
    return tuple(
        Moment(
            step=step,
            departures=tuple(
                sorted(
                    (departure for departure in first.values() if departure.step == step), key=lambda each: _order(each, table)
                )
            ),
        )
        for step in steps
    )


def _order(departure: Departure, table: TensorTable) -> tuple[int, int, float, int]:
    """Return the sort key of what left at one step: as a step makes it, then the gravest, the farthest, the deepest."""
    times = departure.times if departure.times is not None else 1.0
    far = -max(times, 1 / times) if times > 0 else 0.0
    return KINDS.index(departure.kind), HOW_GRAVE.index(departure.how), far, -(table.depth(departure.name) or 0)


def tracks(
    history: History, channels: Sequence[Channel], out: Sequence[Departure], told: Sequence[Moment], *, max_rows: int = 4
) -> Iterator[Track]:
    """Yield the rows of the timeline: the run's own numbers, then gradients and updates that left first, `max_rows` of each."""
    chosen = [(departure.kind, departure.name) for moment in told for departure in moment.departures]
    for kind in ("loss", "gradient_norm", "gradient", "update", "learning_rate"):
        of_kind = [channel for channel in channels if channel.kind == kind]
        left = [channel for key in chosen for channel in of_kind if (channel.kind, channel.name) == key]
        for channel in (left or ([] if kind in ("gradient", "update") else of_kind))[:max_rows]:
            steps = tuple(departure.step for departure in out if (departure.kind, departure.name) == (channel.kind, channel.name))
            yield Track(kind=channel.kind, name=channel.name, values=channel.words, out=steps)
    apart = distances(history)
    if any(each is not None for each in apart):
        yield Track(
            kind="batch",
            name="",
            values=tuple(apart),
            out=tuple(departure.step for departure in out if departure.kind == "batch"),
        )
