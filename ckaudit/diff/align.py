"""Two series on a common axis: equal steps, equal tokens, equal loss or equal time."""

from collections.abc import Callable
from typing import Literal

import numpy as np
from msgspec import Struct

from ckaudit.contract.schema.diff import Axis as Named
from ckaudit.metrics.counters import is_restart
from ckaudit.metrics.loss import train_loss_ema
from ckaudit.metrics.pairs import together
from ckaudit.metrics.progress import tokens_seen
from ckaudit.run.medians import median
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Mask, Series, Steps, at, empty, single

Axis = Named | Literal["time"]
NEEDS = {"tokens": "tokens_seen", "time": "time", "loss": "train_loss_raw"}


class PairedSeries(Struct, frozen=True, eq=False):
    """One quantity of two runs at places of a common axis: T of them by P labels.

    Attributes:
        name: Catalogue name, or path into the checkpoints.
        unit: Unit of the values.
        steps: Step of the second run, rising, shape (T,).
        labels: Tensors, layers or slices that both have, shape (P,).
        left: Values of the first run, shape (T, P).
        right: Values of the second run, shape (T, P).
        recorded: Cells that both recorded, shape (T, P).
        apart: How many steps the first run's value is older than asked for, at most.
        either: Cells that one of them recorded at least, shape (T, P); None: not told.
    """

    name: str
    unit: str
    steps: Steps
    labels: tuple[str, ...]
    left: Floats
    right: Floats
    recorded: Mask
    apart: int = 0
    either: Mask | None = None

    @property
    def finite(self) -> Mask:
        """Cells that hold a number in both, shape (T, P)."""
        return self.recorded & np.isfinite(self.left) & np.isfinite(self.right)

    @property
    def unequal(self) -> Mask:
        """Cells that differ in any bit; NaN equals NaN, shape (T, P)."""
        same = (self.left == self.right) | (np.isnan(self.left) & np.isnan(self.right))
        return np.asarray(self.recorded & ~same)

    @property
    def one_sided(self) -> Mask:
        """Cells that only one recorded, in rows where both recorded others of the same kind, shape (T, P)."""
        if self.either is None:
            return np.zeros_like(self.recorded)
        return np.asarray(self.either & ~self.recorded & self.recorded.any(axis=1, keepdims=True))

    def cell(self, row: int, column: int) -> tuple[float | None, float | None]:
        """Return what both recorded in a cell; None: nothing."""
        left, right = float(self.left[row, column]), float(self.right[row, column])
        if self.recorded[row, column]:
            return left, right
        return (None, right) if np.isnan(left) else (left, None)


class CommonAxis(Struct, frozen=True, eq=False):
    """Which step of the first run stands for a step of the second.

    Attributes:
        axis: What is made equal.
        right: Steps of the second run, rising, shape (T,).
        left: Steps of the first that stand for them, shape (T,); -1: none does.
        missing: What is not recorded and would be needed; empty: nothing.
    """

    axis: Axis = "step"
    right: Steps | None = None
    left: Steps | None = None
    missing: str = ""

    def matching_steps(self, steps: Steps) -> Steps:
        """Return the steps of the first run that stand for `steps` of the second, -1 where none does."""
        if self.right is None or self.left is None:
            return steps
        rows = np.searchsorted(self.right, steps, side="right") - 1
        inside = (rows >= 0) & (steps <= self.right[-1])
        return np.asarray(np.where(inside, self.left[rows], -1), np.int64)


def common_axis(left: Run, right: Run, axis: Axis) -> CommonAxis:
    """Bring two runs onto one axis.

    By tokens a step of the second run stands beside the last of the first that had seen no more, by time beside the last
    that had trained no longer; by loss beside the first whose smoothed loss had come as far down. Where equal steps have
    seen equally many tokens, to be aligned by tokens is to be aligned by step.
    """
    if axis == "step" or (axis == "tokens" and _see_equal_tokens(left, right)):
        return CommonAxis()
    measured: dict[str, Callable[[Run], Series]] = {"tokens": tokens_seen, "time": _elapsed, "loss": _descent}
    (first, left_values), (second, right_values) = (_column(measured[axis](run)) for run in (left, right))
    if not len(first) or not len(second):
        return CommonAxis(axis=axis, missing=NEEDS[axis])
    if axis != "loss":
        rows = np.searchsorted(left_values, right_values, side="right") - 1
        rows = np.where(right_values > left_values[-1], -1, rows)
    else:
        rows = np.searchsorted(-left_values, -right_values, side="left")
        rows = np.where(rows == len(left_values), -1, rows)
    return CommonAxis(axis=axis, right=second, left=np.where(rows >= 0, first[rows], -1))


def _see_equal_tokens(left: Run, right: Run, *, few: float = 0.5) -> bool:
    """Tell whether both had seen as many tokens at each common step; they must share more than `few` of the steps."""
    (first, left_tokens), (second, right_tokens) = (_column(tokens_seen(run)) for run in (left, right))
    shared, rows_of_first, rows_of_second = np.intersect1d(first, second, assume_unique=True, return_indices=True)
    enough = len(shared) > few * min(len(first), len(second))
    return enough and bool((left_tokens[rows_of_first] == right_tokens[rows_of_second]).all())


def pair_series(left: Series, right: Series, axes: CommonAxis, *, few: float = 0.5) -> PairedSeries:
    """Put two series side by side.

    By step the steps that both have count; where those are fewer than `few` of the shorter log, the last value of the
    first at or before each step of the second does, not older than twice the usual distance of its lines.

    Args:
        left: Of the first run.
        right: Of the second run.
        axes: What stands for what.
        few: Share of common steps below which logs count as written at other intervals.
    """
    if axes.axis == "step":
        one, two = together(left, right)
        if len(one.steps) >= few * min(len(left.steps), len(right.steps)):
            shared, either = one.recorded & two.recorded, one.recorded | two.recorded
            return PairedSeries(right.name, right.unit, two.steps, one.labels, one.values, two.values, shared, either=either)
    labels = tuple(label for label in left.labels if label in set(right.labels))
    one, two = (series.only(set(labels).__contains__) for series in (left, right))
    order = [two.labels.index(label) for label in labels]
    return _nearest(one, two.steps, two.values[:, order], two.recorded[:, order], right, axes)


def _nearest(one: Series, steps: Steps, values: Floats, recorded: Mask, right: Series, axes: CommonAxis) -> PairedSeries:
    wanted = axes.matching_steps(steps)
    aligned = at(one, wanted)
    spacing = median(np.diff(one.steps)) if len(one.steps) > 1 else 0.0
    near = (aligned.age >= 0) & (aligned.age <= 2 * spacing) & (wanted >= 0)[:, None]
    rows = near.any(axis=1)
    apart = int(aligned.age[rows].max(initial=0)) if rows.any() else 0
    both = recorded & near
    return PairedSeries(right.name, right.unit, steps[rows], one.labels, aligned.values[rows], values[rows], both[rows], apart)


def _descent(run: Run) -> Series:
    """Return how far the smoothed loss of a run has come down at each step."""
    series = train_loss_ema(run)
    return series.mapped(lambda values: np.fmin.accumulate(values, axis=0), "descent", series.unit)


def _elapsed(run: Run) -> Series:
    """Return how long a run had trained at each step; what passed between two sessions does not count."""
    time = run.scalar("time")
    if not time:
        return empty("elapsed", "s")
    steps, clock = _column(time)
    passed = np.maximum(np.diff(clock, prepend=clock[:1]), 0.0)
    passed[is_restart(run, clock)] = 0.0
    return single("elapsed", "s", steps, np.cumsum(passed))


def _column(series: Series) -> tuple[Steps, Floats]:
    if not series:
        return np.empty(0, np.int64), np.empty(0)
    known = series.finite[:, 0]
    return series.steps[known], series.values[known, 0]
