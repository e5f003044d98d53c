"""Alignment of two series on a common axis: equal steps, tokens, loss or time."""

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
    """One quantity of two runs at T points of a common axis, for P labels.

    Attributes:
        name: Catalogue name, or path into the checkpoints.
        unit: Unit of the values.
        steps: Steps of the second run, ascending, shape (T,).
        labels: Tensors, layers or slices that both have, shape (P,).
        left: Values of the first run, shape (T, P).
        right: Values of the second run, shape (T, P).
        recorded: Cells that both runs recorded, shape (T, P).
        apart: Maximum age of the first run's values, in steps before the requested ones.
        either: Cells that at least one of them recorded, shape (T, P); None: not known.
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
        """Cells that hold a finite number in both, shape (T, P)."""
        return self.recorded & np.isfinite(self.left) & np.isfinite(self.right)

    @property
    def unequal(self) -> Mask:
        """Cells that differ in any bit; NaN equals NaN, shape (T, P)."""
        same = (self.left == self.right) | (np.isnan(self.left) & np.isnan(self.right))
        return np.asarray(self.recorded & ~same)

    @property
    def one_sided(self) -> Mask:
        """Cells that only one run recorded, in rows where both recorded other cells, shape (T, P)."""
        if self.either is None:
            return np.zeros_like(self.recorded)
        return np.asarray(self.either & ~self.recorded & self.recorded.any(axis=1, keepdims=True))

    def cell(self, row: int, column: int) -> tuple[float | None, float | None]:
        """Return the values of both runs in a cell; None: not recorded."""
        left, right = float(self.left[row, column]), float(self.right[row, column])
        if self.recorded[row, column]:
            return left, right
        return (None, right) if np.isnan(left) else (left, None)


class CommonAxis(Struct, frozen=True, eq=False):
    """The step of the first run that corresponds to each step of the second.

    Attributes:
        axis: The quantity that is equal.
        right: Steps of the second run, ascending, shape (T,).
        left: Corresponding steps of the first run, shape (T,); -1: there is none.
        missing: What is needed but not recorded; empty: nothing.
    """

    axis: Axis = "step"
    right: Steps | None = None
    left: Steps | None = None
    missing: str = ""

    def matching_steps(self, steps: Steps) -> Steps:
        """Return the steps of the first run that correspond to `steps` of the second, -1 if there is none."""
        if self.right is None or self.left is None:
            return steps
        rows = np.searchsorted(self.right, steps, side="right") - 1
        inside = (rows >= 0) & (steps <= self.right[-1])
        return np.asarray(np.where(inside, self.left[rows], -1), np.int64)


def common_axis(left: Run, right: Run, axis: Axis) -> CommonAxis:
    """Return the common axis of two runs.

    By tokens, a step of the second run corresponds to the last step of the first that had seen no more tokens; by time, to the
    last that had trained no longer; by loss, to the first whose smoothed loss had fallen as low. If equal steps have seen equally
    many tokens, alignment by tokens is alignment by step.
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
    """Tell whether both runs had seen as many tokens at each common step; they must share more than `few` of the steps."""
    (first, left_tokens), (second, right_tokens) = (_column(tokens_seen(run)) for run in (left, right))
    shared, rows_of_first, rows_of_second = np.intersect1d(first, second, assume_unique=True, return_indices=True)
    enough = len(shared) > few * min(len(first), len(second))
    return enough and bool((left_tokens[rows_of_first] == right_tokens[rows_of_second]).all())


def pair_series(left: Series, right: Series, axes: CommonAxis, *, few: float = 0.5) -> PairedSeries:
    """Return two series on a common axis.

    By step, the common steps count. If these are fewer than `few` of the shorter log, the first run's last value at or before
    each step of the second is used, not older than twice the median interval of its lines.

    Args:
        left: Series of the first run.
        right: Series of the second run.
        axes: The common axis.
        few: Share of common steps below which the logs count as written at different intervals.
    """
    if axes.axis == "step":
        one, two = together(left, right)
        if len(one.steps) >= few * min(len(left.steps), len(right.steps)):
            shared, either = one.recorded & two.recorded, one.recorded | two.recorded
            return PairedSeries(right.name, right.unit, two.steps, one.labels, one.values, two.values, shared, either=either)
    labels = tuple(label for label in left.labels if label in right.places)
    one, two = (series.only(set(labels).__contains__) for series in (left, right))
    order = [two.places[label] for label in labels]
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
    """Return the lowest smoothed loss of a run up to each step."""
    series = train_loss_ema(run)
    return series.mapped(lambda values: np.fmin.accumulate(values, axis=0), "descent", series.unit)


def _elapsed(run: Run) -> Series:
    """Return the training time of a run up to each step; time between two sessions does not count."""
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
