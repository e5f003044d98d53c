"""The size of updates relative to what the optimizer was given: learning rate, gradient and weights."""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ckaudit.causes.cause import contradicts
from ckaudit.causes.shared.rate_course import known_rate
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.pairs import together
from ckaudit.run.run_facts import is_plain_descent
from ckaudit.run.series import Floats, Series, at
from ckaudit.run.tensors import table_of


def per_element(norm: Series | None, facts: Manifest | None) -> Series | None:
    """Return a norm per root of the number of elements, of the matrices that run.json gives the shape of, shape (C, P)."""
    tensors = table_of(facts)
    if norm is None or not (known := norm.only(tensors.is_matrix)).labels:
        return None
    root = np.sqrt(tensors.elements(known.labels))
    return Series(norm.name, norm.unit, known.steps, known.labels, known.values / root, known.recorded)


def movement_per_rate(step: Series | None, rate: Series | None, *, full: float = 0.3) -> Floats | None:
    """Return an element's movement in one update over the learning rate, for each matrix: medians over checkpoints, shape (P,).

    Only checkpoints at `full` of the highest rate or more count; None where nothing moved.
    """
    if step is None or rate is None or not rate.finite.any():
        return None
    used = at(rate, step.steps).values.max(axis=1, initial=-np.inf)
    rows = used >= full * float(rate.values[rate.finite].max())
    values = np.where(step.finite & (step.values > 0), step.values, np.nan)[rows]
    seen = np.isfinite(values).any(axis=0)
    return np.nanmedian(values[:, seen], axis=0) if seen.any() else None


def gain_of_gradient(
    update: Series | None, gradient: Series | None, rate: Series | None, clip: Series | None
) -> tuple[Floats, Floats] | None:
    """Return each tensor's update over rate times clipped gradient, and its gradient; medians over checkpoints, shape (P,).

    The first is 1 for every tensor under plain descent, and at most 1/(1 - momentum); under Adam it depends on the tensor.
    """
    if update is None or gradient is None or rate is None:
        return None
    moved, slope = together(update, gradient)
    if not moved.labels:
        return None
    used = at(rate, moved.steps).values.max(axis=1, initial=0.0)[:, None]
    left = np.ones_like(used) if clip is None else np.nan_to_num(at(clip, moved.steps).values[:, :1], nan=1.0)
    known = moved.finite & slope.finite & (slope.values > 0) & (moved.values > 0) & (used > 0) & (left > 0)
    with np.errstate(all="ignore"):
        gains = np.where(known, moved.values / (used * left * slope.values), np.nan)
    seen = np.isfinite(gains).any(axis=0)
    if seen.sum() < 3:
        return None
    return np.nanmedian(gains[:, seen], axis=0), np.nanmedian(np.where(known, slope.values, np.nan)[:, seen], axis=0)


def gradient_percentile_ratio(gradient: Series | None, facts: Manifest | None) -> float | None:
    """Return how many times as large gradients are in some matrices as in others: the 90th percentile over the 10th."""
    matrices = gradient.only(table_of(facts).is_matrix) if gradient is not None else None
    if matrices is None or len(matrices.labels) < 2:
        return None
    values = np.where(matrices.finite & (matrices.values > 0), matrices.values, np.nan)
    usual = np.nanmedian(values[:, np.isfinite(values).any(axis=0)], axis=0)
    if len(usual) < 2:
        return None
    low, high = np.percentile(usual, [10, 90])
    return float(high / low)


def total_rate_over_spread(rate: Series | None, std: Series | None) -> float | None:
    """Return the sum of all learning rates over the median tensor's first standard deviation.

    An element under Adam moves by about the rate at most: below 1, all updates together could not replace the weights.
    """
    if rate is None or std is None or (spread := first_spread(std)) is None:
        return None
    rows = rate.finite[:, 0]
    steps, values = rate.steps[rows], rate.values[rows, 0]
    return float(np.trapezoid(values, steps)) / spread if len(steps) > 1 else None


def weights_replaced(
    rate: Series | None, std: Series | None, adapts: Series | None, step: int | None, weight: float
) -> Iterator[Evidence]:
    """Yield evidence against a fault of the structure where Adam had replaced the weights before the fault showed at a step.

    An element under Adam moves by about the rate in a step; a rate above the spread of the first weights replaces them at once.
    """
    steps, values = known_rate(rate)
    spread, early = first_spread(std), values[steps <= (step if step is not None else 0)]
    times = 0.0 if adapts is None or is_plain_descent(adapts) or not spread or not early.size else float(early.max()) / spread
    if times > 1:
        by_then = f"by then the learning rate was {times:.2g} times the spread of the first weights"
        yield contradicts(weight, f"{by_then}: it threw them there", learning_rate.name)


def largest_update(update: Series | None, step: int | None, *, before: int = 20) -> float | None:
    """Return the largest update over the weights in the steps up to one, `before` of them; None where none is known."""
    if update is None or step is None:
        return None
    near = update.finite[:, 0] & (update.steps > max(step - before, 0)) & (update.steps <= step)
    return float(update.values[near, 0].max()) if near.any() else None


class ExcessRate(Struct, frozen=True):
    """A peak learning rate that is far too high, and one that would do.

    Attributes:
        peak: The highest rate that was recorded.
        goal: The rate that would do.
    """

    peak: float
    goal: float

    @property
    def times(self) -> float:
        """How many times too high the peak is."""
        return self.peak / self.goal


def excess_rate(
    rate: Series | None,
    update: Series | None,
    adapts: Series | None,
    *,
    max_update: float = 0.01,
    max_adaptive_rate: float = 1e-2,
    max_times: float = 10.0,
) -> ExcessRate | None:
    """Return a peak rate that is more than `max_times` times one that would do, and that rate; None where the peak is lower.

    A rate would do if its updates change `max_update` of the weights at most and, where the optimizer is not plain descent, if
    it is `max_adaptive_rate` at most. No warm-up makes up for so high a peak: it is over when the peak is reached.
    """
    peak = float(known_rate(rate)[1].max(initial=0.0))
    changed = None if update is None else update.late_median()
    if changed is None or peak <= 0:
        return None
    goal = min(peak * max_update / max(changed, max_update), np.inf if is_plain_descent(adapts) else max_adaptive_rate)
    return ExcessRate(peak, goal) if peak > max_times * goal > 0 else None


def first_spread(std: Series | None) -> float | None:
    """Return the median of the tensors' first standard deviations, those without any spread left out."""
    if std is None or not std.values.size:
        return None
    values = np.where(std.finite & (std.values > 0), std.values, np.nan)
    rows = np.flatnonzero(np.isfinite(values).any(axis=1))
    return float(np.nanmedian(values[rows[0]])) if len(rows) else None
