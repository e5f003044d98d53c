"""Departures: steps at which numbers of the black box leave their normal range, the onset, and earlier departures."""

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from ckaudit.audit.autopsy.black_box import Channel, batch_distances, repeated_batches
from ckaudit.audit.autopsy.result import KINDS, Departure, How, Kind, Moment, Track
from ckaudit.contract.schema.checkpoint import History
from ckaudit.run.medians import median
from ckaudit.run.robust import MAD_TO_SIGMA
from ckaudit.run.series import Floats, Mask
from ckaudit.run.tensors import TensorTable


class NormalRange(Struct, frozen=True, kw_only=True):
    """The normal range of one kind of number, and the limit for dead values.

    Attributes:
        above: Multiple of its median above which it is out of range.
        below: Share of its median below which it is out of range; 0: never.
        deviations: Robust deviations by which it must also exceed the median.
        dead: Absolute value up to which it is dead, whatever its median; None: never.
        window: Number of past steps that count.
        least: Smallest number of past steps for a median.
    """

    above: float
    below: float = 0.0
    deviations: float = 8.0
    dead: float | None = None
    window: int = 24
    least: int = 8


# Losses spread by tenths from batch to batch, gradient norms by halves (a healthy start goes through a factor of ten in the
# black box, and 8 robust deviations let that pass). 1e-10 is what the playbook calls a dead gradient (D1.3).
RANGES: dict[Kind, NormalRange] = {
    "loss": NormalRange(above=1.3),
    "gradient": NormalRange(above=2.0, below=0.01, dead=1e-10),
    "gradient_norm": NormalRange(above=2.0, below=0.01, dead=1e-10),
    "update": NormalRange(above=3.0, below=0.01, dead=0.0),
    "learning_rate": NormalRange(above=1.5, below=0.67, deviations=0.0, window=1),
}


class OutOfRange(Struct, frozen=True, kw_only=True):
    """One step out of range: its row in the box, the side, and the usual value."""

    row: int
    how: How
    usual: float | None
    times: float | None


def out_of_range(channel: Channel) -> list[OutOfRange]:
    """Return every step at which a number is out of its range, oldest first."""
    rule, out_rows = RANGES[channel.kind], []
    for row in np.flatnonzero(channel.recorded).tolist():
        value = float(channel.values[row])
        known = channel.values[:row][np.isfinite(channel.values[:row])]
        earlier = known[-rule.window :]
        usual = median(earlier) if len(known) >= rule.least else None
        spread = MAD_TO_SIGMA * median(np.abs(earlier - median(earlier))) if len(earlier) else 0.0
        how = side_out_of_range(value, usual, spread, rule, channel.kind)
        if how:
            times = value / usual if usual and np.isfinite(value) else None
            out_rows.append(OutOfRange(row=row, how=how, usual=usual, times=times))
    return out_rows


def side_out_of_range(value: float, usual: float | None, spread: float, rule: NormalRange, kind: Kind) -> How | None:
    """Return the side of its normal range on which a value lies; None if it is inside."""
    if not np.isfinite(value):
        return "not_finite"
    if rule.dead is not None and abs(value) <= rule.dead:
        return "dead"
    if usual is None or usual <= 0:
        return None
    if value > max(rule.above * usual, usual + rule.deviations * spread):
        return "changed" if kind == "learning_rate" else "above"
    if value < rule.below * usual:
        return "changed" if kind == "learning_rate" else "below"
    return None


def is_back_in_range(values: Floats, usual: float | None, limit_times: float) -> Mask:
    """Return which later values (N,) are finite and between `usual / (10 * limit_times)` and `limit_times * usual`."""
    finite = np.isfinite(values)
    if not usual:
        return np.asarray(finite & (values != 0))
    with np.errstate(invalid="ignore"):
        return np.asarray(finite & (values <= limit_times * usual) & (values >= usual / (10 * limit_times)))


# From single steps out of range to the course of events: the onset, the first departures, and earlier abnormal values.
HOW_GRAVE = ("not_finite", "dead", "empty", "unlike", "repeated", "changed", "above", "below")
STANDING = ("not_finite", "dead")


def departures(history: History, channels: Sequence[Channel]) -> list[Departure]:
    """Return everything out of its range at any step of the box."""
    steps = history.steps
    all_departures = []
    for channel in channels:
        rows = np.flatnonzero(channel.recorded).tolist()
        for place, out in enumerate(out_of_range(channel)):
            standing = out.how in STANDING and out.row == rows[place]  # so are all recorded steps before it
            all_departures.append(
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
    apart = batch_distances(history)
    all_departures += [
        Departure(step=steps[row], kind="batch", name="", how="repeated", times=float(apart[row] or 0))
        for row in repeated_batches(apart)
    ]
    return all_departures


def abnormal_from_the_start(out: Sequence[Departure]) -> tuple[Departure, ...]:
    """Return the numbers that are dead or not finite from the first step of the box on."""
    first: dict[tuple[str, str], Departure] = {}
    for departure in out:
        if departure.since_start:
            first.setdefault((departure.kind, departure.name), departure)
    return tuple(first.values())


def onset_of(steps: Sequence[int], out: Sequence[Departure], event: int, *, quiet: int = 5) -> int | None:
    """Return the step at which the events that led to `event` began; None if nothing near it was out of range.

    Steps out of range belong together if at most `quiet` rows of the box lead from one to the next. A single tensor slightly out
    of range is noise: among dozens of tensors one always is.
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
    """Tell whether a step shows more than noise: a number of the whole run, several tensors, or one that is far out."""
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
    """Return the departures from the onset on, step by step; only the first step of each number counts."""
    if onset is None:
        return ()
    first: dict[tuple[str, str, str], Departure] = {}
    for departure in sorted(out, key=lambda departure: departure.step):
        if departure.step >= onset:
            first.setdefault((departure.kind, departure.name, departure.how if departure.kind == "batch" else ""), departure)
    steps = sorted({departure.step for departure in first.values()})
    return tuple(
        Moment(
            step=step,
            departures=tuple(
                sorted(
                    (departure for departure in first.values() if departure.step == step),
                    key=lambda departure: _order(departure, table),
                )
            ),
        )
        for step in steps
    )


def _order(departure: Departure, table: TensorTable) -> tuple[int, int, float, int]:
    """Return the sort key of the departures at one step: order within the step, then severity, distance and depth."""
    times = departure.times if departure.times is not None else 1.0
    far = -max(times, 1 / times) if times > 0 else 0.0
    return KINDS.index(departure.kind), HOW_GRAVE.index(departure.how), far, -(table.depth(departure.name) or 0)


def timeline_rows(
    history: History, channels: Sequence[Channel], out: Sequence[Departure], story: Sequence[Moment], *, max_rows: int = 4
) -> Iterator[Track]:
    """Yield the rows of the timeline: the run's own numbers, then the gradients and updates that left first, `max_rows` each."""
    chosen = [(departure.kind, departure.name) for moment in story for departure in moment.departures]
    for kind in ("loss", "gradient_norm", "gradient", "update", "learning_rate"):
        of_kind = [channel for channel in channels if channel.kind == kind]
        left = [channel for key in chosen for channel in of_kind if (channel.kind, channel.name) == key]
        for channel in (left or ([] if kind in ("gradient", "update") else of_kind))[:max_rows]:
            steps = tuple(departure.step for departure in out if (departure.kind, departure.name) == (channel.kind, channel.name))
            yield Track(kind=channel.kind, name=channel.name, values=channel.words, out=steps)
    apart = batch_distances(history)
    if any(distance is not None for distance in apart):
        yield Track(
            kind="batch",
            name="",
            values=tuple(apart),
            out=tuple(departure.step for departure in out if departure.kind == "batch"),
        )
