"""Values that questions take from a series: its points, its last row, its levels from start to end, and changes of its data."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Finding
from ckaudit.contract.schema.tensor_names import is_bias
from ckaudit.rules.loss.loss_not_falling import EARLY_PLATEAU, held_out_falls, may_plateau
from ckaudit.run.falls import fall_between_thirds
from ckaudit.run.medians import median, medians_of_parts, medians_of_three, thirds_of_steps
from ckaudit.run.rises import end_level
from ckaudit.run.robust import begins_at_zero, begins_with_its_run
from ckaudit.run.series import Floats, Mask, Series, Steps
from ckaudit.run.tensors import TensorTable, last_of_stack

MIN_SHOWN_RATIO = 1.005
"""A ratio below this is not shown: it is too close to 1 to be worth telling apart."""


class CurvePoints(NamedTuple):
    """The finite points of one column: steps and values, both shape (K,)."""

    steps: Steps
    values: Floats

    @property
    def last(self) -> tuple[int, float]:
        """The last step, and the value there."""
        return int(self.steps[-1]), float(self.values[-1])

    @property
    def first(self) -> tuple[int, float]:
        """The first step, and the value there."""
        return int(self.steps[0]), float(self.values[0])


def points(series: Series, label: str | None = None) -> CurvePoints:
    """Return the finite points of one column, the first one unless it is named; none where it has no such column."""
    if not series.labels or (label is not None and label not in series.places):
        return CurvePoints(np.empty(0, np.int64), np.empty(0))
    column = 0 if label is None else series.places[label]
    return CurvePoints(*series.finite_points(column))


def last_row(series: Series) -> tuple[int, dict[str, float]]:
    """Return the last step with a finite cell, and its finite cells by label; step 0 and none where there is none."""
    rows = np.flatnonzero(series.finite.any(axis=1))
    return (int(series.steps[rows[-1]]), row_of(series, int(rows[-1]))) if rows.size else (0, {})


def row_of(series: Series, row: int) -> dict[str, float]:
    """Return the finite cells of one row by label."""
    cells = zip(series.labels, series.values[row].tolist(), series.recorded[row].tolist(), strict=True)
    return {label: value for label, value, known in cells if known and math.isfinite(value)}


def levels(values: Floats, count: int) -> Floats:
    """Return the medians of `count` equal stretches of a series, in order of time; of fewer points, the points.

    >>> levels(np.array([4.0, 4.0, 9.0, 1.0, 1.0, 1.0]), 2).tolist()
    [4.0, 1.0]
    """
    if len(values) <= count:
        return values
    return medians_of_parts(values, count)


def why_no_fall(
    steps: Steps,
    values: Floats,
    min_fall_share: float,
    facts: Manifest | None = None,
    moved: Series | None = None,
    val: Series | None = None,
) -> str | None:
    """Return None where a curve falls; otherwise what excuses it, an empty string where nothing does.

    Args:
        steps: Shape (N,).
        values: Finite, shape (N,), five at least.
        min_fall_share: Share of the level that counts as a fall: a noise that would hide half of it excuses the curve.
        facts: What run.json says: a model of tokens may rest in its first steps.
        moved: How far its weights have come.
        val: The held-out loss, which shows what noise hides, and whose steps show how far the run went.
    """
    fall = fall_between_thirds(values)
    if not fall.is_none:
        return None
    if val is not None and (why := _why_by_evaluations(steps, val)):
        return why
    if begins_at_zero(values) or not values.any():
        return "it begins at zero, as that of a policy, and nobody knows what less of it is worth"
    if not begins_with_its_run(steps):
        return "the log begins in the middle of its run, where the fall may be over"
    if fall.error > 0.5 * min_fall_share * abs(fall.last):
        return f"its noise, {fall.error:.2g}, would hide a fall of {min_fall_share:.0%}"
    return EARLY_PLATEAU if may_plateau(steps, facts, moved) else ""


def _why_by_evaluations(steps: Steps, val: Series) -> str:
    """Return what evaluations say of a training loss that does not fall; empty: nothing."""
    if len(val.steps) and val.steps[-1] > 2 * steps[-1]:
        return f"it was logged up to step {steps[-1]} only, of {val.steps[-1]}"
    return "the held-out loss falls, which its noise hides" if held_out_falls(val) else ""


def ratio_to_lowest_before(curve: CurvePoints) -> CurvePoints:
    """Return each point of a curve over the lowest level before it, a median of three; none of a curve that is not positive.

    >>> ratio_to_lowest_before(CurvePoints(np.array([1, 2, 3, 4]), np.array([4.0, 2.0, 2.0, 6.0]))).values.tolist()
    [0.6666666666666666, 1.0, 3.0]
    """
    if len(curve.values) < 2 or curve.values.min() <= 0:
        return CurvePoints(curve.steps[:0], curve.values[:0])
    lowest = np.minimum.accumulate(medians_of_three(curve.values))[:-1]
    return CurvePoints(curve.steps[1:], curve.values[1:] / lowest)


def rises_at_once(course: CurvePoints, rise: Finding, *, min_rise_ratio: float) -> bool:
    """Tell whether a curve makes half of a lasting rise at once: from the two points before its start to the three from there.

    Args:
        course: The curve.
        rise: A finding of loss_rises: its first step, and as its limit the level before.
        min_rise_ratio: How many times the level before those three must be.
    """
    row = int(np.searchsorted(course.steps, rise.first_step or 0))
    if not 0 < row < len(course.values) or not isinstance(rise.limit, float):
        return False
    before, after = course.values[max(0, row - 2) : row], course.values[row : row + 3]
    is_at_once = median(after) - median(before) >= 0.5 * (end_level(course.values[row:]) - rise.limit)
    return is_at_once and median(after) > min_rise_ratio * rise.limit > 0


def growth(series: Series, *, early: int = 1) -> dict[str, float]:
    """Return, by label, the median of the last third of the steps over that of an earlier one.

    Labels with fewer than three finite points, or with a level that is not positive, are left out.

    Args:
        series: Shape (T, P).
        early: Number of the earlier third, from 0.
    """
    grown: dict[str, float] = {}
    if len(series.values) >= 3 and series.finite.all():
        thirds = thirds_of_steps(series.steps)
        low, high = (np.median(series.values[thirds[number]], axis=0) for number in (early, 2))
        ratios = zip(series.labels, low.tolist(), high.tolist(), strict=True)
        return {label: after / before for label, before, after in ratios if before > 0}
    for label in series.labels:
        steps, values = points(series, label)
        if len(values) < 3:
            continue
        thirds = thirds_of_steps(steps)
        before, after = (median(values[thirds[number]]) for number in (early, 2))
        if before > 0:
            grown[label] = after / before
    return grown


def is_matrix(table: TensorTable, name: str) -> bool:
    """Tell whether a tensor is a matrix, as far as is known: norms, biases and other vectors have a scale of their own."""
    fact = table.facts.get(name)
    if fact is not None and fact.shape is not UNSET and fact.shape:
        return len(fact.shape) > 1
    return table.kind(name) != "norm" and not is_bias(name)


def uneven_list(row: Mapping[str, float]) -> dict[str, float]:
    """Return the blocks of the most uneven list, whose values lie furthest apart; blocks of different lists do different things.

    >>> uneven_list({"policy.0": 1.0, "policy.1": 2.0, "critic.0": 900.0})
    {'policy.0': 1.0, 'policy.1': 2.0}
    """
    blocks = [*row]
    lists: dict[int, dict[str, float]] = {}
    for block, last in zip(blocks, last_of_stack(blocks), strict=True):
        lists.setdefault(last, {})[block] = row[block]
    return max(lists.values(), key=lambda one: _ratio(min(one.values()), max(one.values())))


def ratio_of_alike(row: dict[str, float], blocks: Sequence[str], alike: Mask) -> float:
    """Return the largest ratio between two blocks of one build; `alike` tells which of `blocks` have the same build.

    >>> mask = np.array([[True, True, False], [True, True, False], [False, False, True]])
    >>> ratio_of_alike({"a": 1.0, "b": 2.0, "c": 900.0}, ["a", "b", "c"], mask)
    2.0
    """
    places = [place for place, block in enumerate(blocks) if block in row]
    sizes = np.array([row[blocks[place]] for place in places], np.float64)
    low, high = np.minimum.outer(sizes, sizes), np.maximum.outer(sizes, sizes)
    with np.errstate(all="ignore"):
        ratios = np.where(low > 0, high / low, np.where(high > 0, np.inf, 1.0))
    return float(ratios[alike[np.ix_(places, places)]].max(initial=1.0))


def _ratio(one: float, other: float) -> float:
    """Return how many times the larger of two sizes is the smaller."""
    low, high = sorted((one, other))
    return high / low if low > 0 else math.inf if high > 0 else 1.0


def largest(values: dict[str, float]) -> tuple[str, float]:
    """Return the label with the largest value, and the value; the first of equals."""
    label = max(values, key=lambda name: values[name])
    return label, values[label]


def smallest(values: dict[str, float]) -> tuple[str, float]:
    """Return the label with the smallest value, and the value; the first of equals."""
    label = min(values, key=lambda name: values[name])
    return label, values[label]


def above_best(rise: float, best: float) -> str:
    """Return how far a loss stands above its best: as a share, or as a difference where that says more.

    >>> above_best(0.25, 2.0), above_best(11.0, -3.0)
    ('25.0% above its best', '33 above its best, -3')
    """
    return f"{rise:.1%} above its best" if best > 0 and rise < 10 else f"{rise * abs(best):.4g} above its best, {best:.4g}"


def changes_of_data(facts: Manifest | None) -> list[int]:
    """Return the steps from which on other data were planned, as run.json says them in its data manifest."""
    return steps_of_stages(facts.data_manifest if facts is not None else UNSET)


def steps_of_stages(plan: object) -> list[int]:
    """Return the first step of each stage that a plan lists."""
    stages = plan.get("stages") if isinstance(plan, dict) else None
    steps = [stage.get("first_step") for stage in stages if isinstance(stage, dict)] if isinstance(stages, list) else []
    return [int(step) for step in steps if isinstance(step, int | float)]
