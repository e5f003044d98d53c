"""Whether a number has another level after the fall than before, beyond its own trend and noise, as evidence."""

from collections.abc import Iterator
from typing import Literal

import numpy as np
from msgspec import Struct

from ckaudit.audit.coverage.applicability import why_metric_not_applicable
from ckaudit.audit.coverage.remedies import lines_for_run
from ckaudit.audit.drop.result import Evidence, Fall, Said
from ckaudit.metrics import Metric
from ckaudit.metrics.catalogue import entry_of
from ckaudit.run.medians import median
from ckaudit.run.robust import MAD_TO_SIGMA
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Mask, Series, Steps

Direction = Literal["up", "down", "both"]


class ShiftLimits(Struct, frozen=True, kw_only=True):
    """Limits of a number's movement; the largest of the three applies.

    Attributes:
        min_change: Change in its own unit.
        share: Change as a share of its level before.
        noise: Change in robust deviations of the points before from their trend.
        direction: The bad direction.
        moving: Whether training itself moves the number. If not, all points before and more points after are compared.
    """

    min_change: float = 0.0
    share: float = 0.0
    noise: float = 4.0
    direction: Direction = "both"
    moving: bool = True


class Shift(Struct, frozen=True, kw_only=True):
    """One number before and after the fall.

    Attributes:
        before: Level before: the median of the later half of the points.
        after: Median of the points after.
        limit: The end of the expected range in the bad direction.
        changed: Whether it exceeds the limit in the bad direction.
        step: First step beyond the limit; None if it did not change.
    """

    before: float
    after: float
    limit: float
    changed: bool
    step: int | None


def points_on_both_sides(
    steps: Steps, last_good: int, first_bad: int, *, points: int = 12, few: int = 3, soon: int = 25
) -> tuple[slice, slice] | None:
    """Return which points count as before and as after, the nearest ones; None if a side has none.

    Args:
        steps: Rising, shape (N,).
        last_good: Last step before.
        first_bad: First step after; if nothing is recorded from there on, the points in between count as after.
        points: Number of points per side; more before if the two steps are far apart, so that the trend covers twice their
            distance.
        few: Number of points after the fall if they are sparse, because later ones belong to another time.
        soon: Steps after which no more than `few` points count.
    """
    end, start = int(np.searchsorted(steps, last_good, side="right")), int(np.searchsorted(steps, first_bad))
    start = end if start == len(steps) else start
    if end == 0 or start == len(steps):
        return None
    near = int(np.searchsorted(steps, max(first_bad, int(steps[start])) + soon))
    long = int(np.searchsorted(steps, last_good - 2 * (first_bad - last_good)))
    return slice(max(0, min(end - points, long)), end), slice(start, start + min(points, max(few, near - start)))


def shift(steps: Steps, values: Floats, last_good: int, first_bad: int, limits: ShiftLimits) -> Shift | None:
    """Compare the points up to `last_good` with those from `first_bad` on; None if a side has none.

    A moving number is expected to keep moving. The line through the medians of both halves of the points before is extrapolated
    to the points after, at most three times as far as it came. Values between the level before and that point are expected, with
    the limit added on both sides.

    Args:
        steps: Steps of finite points, rising, shape (N,).
        values: The points, shape (N,).
        last_good: Last step before.
        first_bad: First step after.
        limits: Additional movement allowed.
    """
    both = points_on_both_sides(steps, last_good, first_bad, few=3 if limits.moving else 12)
    if both is None:
        return None
    early, late = both
    course = _trend(steps[early], values[early], moving=limits.moving)
    level, after, ahead = course.level, median(values[late]), course.ahead(median(steps[late]))
    room = max(limits.min_change, limits.share * abs(level), limits.noise * MAD_TO_SIGMA * course.spread)
    low, high = min(level, ahead) - room, max(level, ahead) + room
    low = max(low, 0.0) if values.min() >= 0 else low
    above, below = limits.direction != "down" and after > high, limits.direction != "up" and after < low
    limit = {"up": high, "down": low, "both": high if after >= level else low}[limits.direction]
    step = None
    if above or below:
        rest = values[early.stop :]
        step = onset(steps[early.stop :], rest > high if above else rest < low, int(steps[late][-1]))
    return Shift(before=level, after=after, limit=limit, changed=above or below, step=step)


class _Trend(Struct, frozen=True, kw_only=True):
    """Trend of a number before the fall: level and step of the later half, those of the earlier half, and its noise."""

    level: float
    step: float
    earlier_level: float
    earlier_step: float
    spread: float

    def ahead(self, step: float, *, max_reach: float = 3.0) -> float:
        """Return the extrapolated level, at most `max_reach` times as far as the trend came."""
        came, took = self.level - self.earlier_level, self.step - self.earlier_step
        return self.level + came * min(max_reach, (step - self.step) / took) if took else self.level


def _trend(steps: Steps, values: Floats, *, moving: bool) -> _Trend:
    """Return the trend of some points; fewer than four have no direction."""
    half = len(values) // 2 if moving and len(values) >= 4 else 0
    step, level = median(steps[half:]), median(values[half:])
    first, start = (median(steps[:half]), median(values[:half])) if half else (step, level)
    slope = (level - start) / (step - first) if half else 0.0
    spread = median(np.abs(values - level - slope * (steps - step)))
    return _Trend(level=level, step=step, earlier_level=start, earlier_step=first, spread=spread)


def onset(steps: Steps, beyond: Mask, until: int) -> int:
    """Return the first step beyond a limit that is mostly followed by others beyond it; `until` at the latest."""
    for row in np.flatnonzero(beyond).tolist():
        if int(steps[row]) >= until:
            break
        if beyond[row : row + 5].mean() > 0.5:
            return int(steps[row])
    return until


def over_labels(series: Series, reduction: Literal["max", "min", "mean"]) -> tuple[Steps, Floats]:
    """Return the steps with a finite cell, and the maximum, minimum or mean of these cells."""
    rows = np.any(series.finite, axis=1)
    if not rows.any():
        return np.empty(0, np.int64), np.empty(0)
    cells = np.where(series.finite, series.values, np.nan)[rows]
    if reduction == "mean":
        return series.steps[rows], np.asarray(np.nanmean(cells, axis=1))
    return series.steps[rows], np.asarray(np.nanmax(cells, axis=1) if reduction == "max" else np.nanmin(cells, axis=1))


# One catalogue number before and after the fall, as evidence.
class ComparedNumber(Struct, frozen=True, kw_only=True):
    """A number to compare.

    Attributes:
        metric: The metric.
        limits: Limits beyond which it counts as changed.
        over: Reduction of its labels: each separately, or to one number.
        sums: Whether the labels are shares of one whole, compared as such: `limits.min_change` bounds the share that moved.
    """

    metric: Metric
    limits: ShiftLimits
    over: Literal["each", "max", "min", "mean"] = "each"
    sums: bool = False


def compared(run: Run, fall: Fall, watched: ComparedNumber) -> Iterator[Evidence]:
    """Yield the evidence of one number, or why there is none."""
    name = watched.metric.name
    if foreign := why_metric_not_applicable(run, name):
        yield Evidence(metric=name, said="not_applicable", sentence=foreign)
        return
    series = watched.metric(run)
    if not series.finite.any():
        owner = entry_of(name)
        yield Evidence(
            metric=name, said="not_recorded", sentence="not recorded", record=lines_for_run(run, owner) if owner else ()
        )
        return
    evidence_of_labels = [_shares(series, fall, watched)] if watched.sums else list(_columns(series, fall, watched))
    known = [evidence for evidence in evidence_of_labels if evidence is not None]
    if not known:
        sentence = f"recorded at {_places(series, fall)}: nothing to compare"
        owner = entry_of(name)
        yield Evidence(metric=name, said="too_few", sentence=sentence, record=lines_for_run(run, owner) if owner else ())
    yield from known


def _places(series: Series, fall: Fall) -> str:
    """Return in words where the points are if one side has none."""
    steps = series.recorded_rows().steps
    one = f"step {steps[0]} alone" if len(steps) == 1 else f"{len(steps)} steps"
    return f"{one}, {'after' if steps[0] > fall.before else 'before'} the fall"


def _columns(series: Series, fall: Fall, watched: ComparedNumber) -> Iterator[Evidence | None]:
    """Yield the evidence of each label, or of all as one number; None if a side has no point."""
    if watched.over != "each":
        yield _evidence_of_label(series, "", *over_labels(series, watched.over), fall, watched)
        return
    for column, label in enumerate(series.labels):
        known = series.finite_in(column)
        shown = "" if label == series.name or len(series.labels) == 1 else label
        yield _evidence_of_label(series, shown, series.steps[known], series.values[known, column], fall, watched)


def _evidence_of_label(
    series: Series, label: str, steps: Steps, values: Floats, fall: Fall, watched: ComparedNumber
) -> Evidence | None:
    moved = shift(steps, values, fall.before, fall.after, watched.limits)
    if moved is None:
        return None
    word: Said = "changed" if moved.changed else "steady"
    sentence = _sentence(moved, series.unit, watched.limits.direction)
    return Evidence(
        metric=series.name,
        label=label,
        said=word,
        sentence=sentence,
        before=moved.before,
        after=moved.after,
        limit=moved.limit,
        step=moved.step,
        unit=series.unit,
    )


def _sentence(change: Shift, unit: str, direction: Direction) -> str:
    before, after, limit = (value_with_unit(value, unit) for value in (change.before, change.after, change.limit))
    if not change.changed:
        bound = "at most" if direction == "up" or (direction == "both" and change.after >= change.before) else "at least"
        return f"{before} before, {after} after; expected: {bound} {limit}"
    moved = "rises" if change.after > change.before else "falls"
    return f"{moved} from {before} to {after}, beyond {limit}, since step {change.step}"


def _shares(series: Series, fall: Fall, watched: ComparedNumber, *, twice: float = 2.0) -> Evidence | None:
    """Compare shares of one whole: half the sum of all absolute changes is the part that moved.

    The two halves before the fall differ too; up to `twice` that difference is expected.
    """
    rows = np.all(series.finite, axis=1)
    steps, values = series.steps[rows], series.values[rows]  # (T,), (T, K)
    both = points_on_both_sides(steps, fall.before, fall.after, few=12)
    if both is None:
        return None
    early, late = values[both[0]], values[both[1]]
    before, after = early.mean(axis=0), late.mean(axis=0)
    half = len(early) // 2
    moved_before = _total_variation(early[:half].mean(axis=0), early[half:].mean(axis=0)) if half else 0.0
    moved, limit = _total_variation(before, after), max(watched.limits.min_change, twice * moved_before)
    widest = int(np.argmax(np.abs(after - before)))
    label, ends = series.labels[widest], [f"{value:.3g}" for value in (before[widest], after[widest])]
    if moved <= limit:
        sentence = f"a share of {moved:.2g} moved, within {limit:.2g}; the most {label}, from {ends[0]} to {ends[1]}"
        return Evidence(metric=series.name, said="steady", sentence=sentence, before=0.0, after=moved, limit=limit)
    rest = np.array([_total_variation(before, row) for row in values[both[0].stop :]])
    step = onset(steps[both[0].stop :], rest > limit, int(steps[both[1]][-1]))
    sentence = (
        f"{label} goes from {ends[0]} to {ends[1]}, in all a share of {moved:.2g} moved, beyond {limit:.2g}, since step {step}"
    )
    return Evidence(
        metric=series.name,
        label=label,
        said="changed",
        sentence=sentence,
        before=float(before[widest]),
        after=float(after[widest]),
        limit=limit,
        step=step,
    )


def _total_variation(one: Floats, other: Floats) -> float:
    """Return the total variation distance of two distributions."""
    return float(np.abs(one - other).sum() / 2)


def value_with_unit(value: float, unit: str) -> str:
    """Return a value with its unit.

    >>> value_with_unit(0.123456, "1"), value_with_unit(12.0, "%")
    ('0.1235', '12 %')
    """
    return f"{value:.4g}" + ("" if unit == "1" else f" {unit}")
