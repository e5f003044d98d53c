"""One number of the catalogue on both sides of the fall, as evidence."""

from collections.abc import Iterator
from typing import Literal

import numpy as np
from msgspec import Struct

from ckaudit.audit.coverage.applicability import why_not_metric
from ckaudit.audit.coverage.remedies import lines_for
from ckaudit.audit.drop.result import Evidence, Fall, Said
from ckaudit.audit.drop.shift import Limits, Shift, Way, onset, over_labels, shift, sides
from ckaudit.metrics import Metric
from ckaudit.metrics.catalogue import entry_of
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Series, Steps


class ComparedNumber(Struct, frozen=True, kw_only=True):
    """A number to compare.

    Attributes:
        metric: Which.
        limits: When it counts as changed.
        over: What becomes of its labels: each stands alone, or they are one number.
        sums: Whether the labels are shares of one whole, compared as such: `limits.least` bounds the share that moved.
    """

    metric: Metric
    limits: Limits
    over: Literal["each", "max", "min", "mean"] = "each"
    sums: bool = False


def compared(run: Run, fall: Fall, watched: ComparedNumber) -> Iterator[Evidence]:
    """Yield the evidence of one number, or why there is none."""
    name = watched.metric.name
    if foreign := why_not_metric(run, name):
        yield Evidence(metric=name, said="not_applicable", sentence=foreign)
        return
    series = watched.metric(run)
    if not series.finite.any():
        owner = entry_of(name)
        yield Evidence(metric=name, said="not_recorded", sentence="not recorded", record=lines_for(owner) if owner else ())
        return
    found = [_shares(series, fall, watched)] if watched.sums else list(_columns(series, fall, watched))
    known = [evidence for evidence in found if evidence is not None]
    if not known:
        sentence = f"recorded at {_places(series, fall)}: nothing to compare"
        owner = entry_of(name)
        yield Evidence(metric=name, said="too_few", sentence=sentence, record=lines_for(owner) if owner else ())
    yield from known


def _places(series: Series, fall: Fall) -> str:
    """Return where the points are that leave a side empty."""
    steps = series.recorded_rows().steps
    one = f"step {steps[0]} alone" if len(steps) == 1 else f"{len(steps)} steps"
    return f"{one}, {'after' if steps[0] > fall.before else 'before'} the fall"


def _columns(series: Series, fall: Fall, watched: ComparedNumber) -> Iterator[Evidence | None]:
    """Yield the evidence of each label, or of all as one number; None where a side has no point."""
    if watched.over != "each":
        yield _one(series, "", *over_labels(series, watched.over), fall, watched)
        return
    for column, label in enumerate(series.labels):
        known = series.finite_in(column)
        shown = "" if label == series.name or len(series.labels) == 1 else label
        yield _one(series, shown, series.steps[known], series.values[known, column], fall, watched)


def _one(series: Series, label: str, steps: Steps, values: Floats, fall: Fall, watched: ComparedNumber) -> Evidence | None:
    found = shift(steps, values, fall.before, fall.after, watched.limits)
    if found is None:
        return None
    said: Said = "changed" if found.changed else "steady"
    sentence = _sentence(found, series.unit, watched.limits.way)
    return Evidence(
        metric=series.name,
        label=label,
        said=said,
        sentence=sentence,
        before=found.before,
        after=found.after,
        limit=found.limit,
        step=found.step,
        unit=series.unit,
    )


def _sentence(found: Shift, unit: str, way: Way) -> str:
    before, after, limit = (amount(value, unit) for value in (found.before, found.after, found.limit))
    if not found.changed:
        bound = "at most" if way == "up" or (way == "both" and found.after >= found.before) else "at least"
        return f"{before} before, {after} after; expected: {bound} {limit}"
    moved = "rises" if found.after > found.before else "falls"
    return f"{moved} from {before} to {after}, beyond {limit}, since step {found.step}"


def _shares(series: Series, fall: Fall, watched: ComparedNumber, *, twice: float = 2.0) -> Evidence | None:
    """Compare shares of one whole: half the sum of all changes is the part of the whole that moved elsewhere.

    Halves of the time before the fall differ too; `twice` as much is not more than that.
    """
    rows = np.all(series.finite, axis=1)
    steps, values = series.steps[rows], series.values[rows]  # (T,), (T, K)
    found = sides(steps, fall.before, fall.after, few=12)
    if found is None:
        return None
    early, late = values[found[0]], values[found[1]]
    before, after = early.mean(axis=0), late.mean(axis=0)
    half = len(early) // 2
    usual = _moved(early[:half].mean(axis=0), early[half:].mean(axis=0)) if half else 0.0
    moved, limit = _moved(before, after), max(watched.limits.least, twice * usual)
    widest = int(np.argmax(np.abs(after - before)))
    label, ends = series.labels[widest], [f"{value:.3g}" for value in (before[widest], after[widest])]
    if moved <= limit:
        sentence = f"a share of {moved:.2g} moved, within {limit:.2g}; the most {label}, from {ends[0]} to {ends[1]}"
        return Evidence(metric=series.name, said="steady", sentence=sentence, before=0.0, after=moved, limit=limit)
    rest = np.array([_moved(before, row) for row in values[found[0].stop :]])
    step = onset(steps[found[0].stop :], rest > limit, int(steps[found[1]][-1]))
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


def _moved(one: Floats, other: Floats) -> float:
    """Return the total variation distance of two distributions."""
    return float(np.abs(one - other).sum() / 2)


def amount(value: float, unit: str) -> str:
    """Return a value with its unit.

    >>> amount(0.123456, "1"), amount(12.0, "%")
    ('0.1235', '12 %')
    """
    return f"{value:.4g}" + ("" if unit == "1" else f" {unit}")
