"""Bounds on how far an optimizer can move a tensor, per step and between checkpoints, from rates, gradients and past updates."""

import numpy as np
from numpy.typing import NDArray

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.run.series import Floats, Series, Steps, at
from ckaudit.run.tensors import table_of

MAX_REACH = 100.0
"""Largest number of gradients that momentum sums up: 1 / (1 - 0.99). The usual momentum of 0.9 sums up 10 (Sutskever et al.
2013)."""

RECENT_STEPS = 50
"""Steps before an update whose largest gradient counts; a momentum of 0.9 has forgotten earlier ones."""

MIN_GRADIENTS = 10
"""Gradients needed for a meaningful maximum."""

MAX_GROWTH = 3.0
"""Largest ratio of the next update to the largest so far, relative to rate and gradient."""


def rate_times_largest_gradient(since: Steps, steps: Steps, way: Floats, gradient: Series) -> Floats:
    """Return summed rates times the largest gradient of each interval, shape (T, 1); infinite if too few gradients were logged.

    Intervals begin `RECENT_STEPS` earlier, because momentum remembers that many steps.
    """
    times, norms = gradient.finite_points()
    starts, ends = np.searchsorted(times, since - RECENT_STEPS, side="right"), np.searchsorted(times, steps, side="right")
    largest = [
        norms[start:end].max() if end - start >= MIN_GRADIENTS else np.inf for start, end in zip(starts, ends, strict=True)
    ]
    return np.where(is_past_end(steps, times), np.inf, way * np.array(largest))[:, None]


def plain_descent_reach(moved: Series, rate: Series, gradient: Series, *, min_points: int) -> Floats:
    """Return how far plain gradient descent can move any tensor in one step, shape (T, 1).

    That is rate times gradient, times `MAX_GROWTH` times the largest ratio so far of the movement of all tensors to it. The
    factor is at most `MAX_REACH`.
    """
    pull = rate_times_largest_gradient(moved.steps, moved.steps, rates_at(moved.steps, rate), gradient)
    with np.errstate(all="ignore"):
        whole = np.sqrt(np.nansum(np.square(moved.values), axis=1, keepdims=True))
        gain = np.where(np.isfinite(pull) & (pull > 0), whole / pull, np.nan)
    largest = np.full(gain.shape, np.inf)
    largest[min_points:] = np.fmax.accumulate(gain, axis=0)[min_points - 1 : -1]
    return np.asarray(np.fmin(MAX_GROWTH * largest, MAX_REACH) * pull)


class UpdateReach:
    """Upper bound on how far the updates of each tensor move it between two checkpoints.

    Args:
        updates: Length of the last update of each tensor, shape (C, P).
        rate: The learning rate.
        gradient: The norm of the whole gradient.
        min_points: Number of measured updates that is needed.

    Attributes:
        labels: The tensors.
        since: Step of the first update that moved each tensor, shape (P,); if none did, of the first measured update.
    """

    def __init__(self, updates: Series, rate: Series | None, gradient: Series | None, *, min_points: int) -> None:
        self._updates, self._rate, self._gradient, self._min_points = updates, rate, gradient, min_points
        self.labels = updates.labels
        moves = np.nan_to_num(updates.values) > 0
        measured = np.where(moves.any(axis=0), moves, np.isfinite(updates.values))
        self.since = updates.steps[np.argmax(measured, axis=0)] if len(updates.steps) else np.zeros(len(updates.labels), np.int64)

    def between(self, steps: Steps) -> Floats:
        """Return the bound from each step to the next, shape (T-1, P); infinite if it is unknown."""
        since, until, last = steps[:-1], steps[1:], self._updates.steps
        sums = [(rates_at(last, self._rate), np.diff(steps) * 1.0 if self._rate is None else _way(steps, self._rate))]
        if self._gradient is not None:
            (sizes, way), pull = sums[0], self._gradient
            sums.append(
                (
                    rate_times_largest_gradient(last, last, sizes, pull)[:, 0],
                    rate_times_largest_gradient(since, until, way, pull)[:, 0],
                )
            )
        with np.errstate(all="ignore"):
            ways = [way[:, None] * np.nanmax(self._gains(sizes), axis=0, initial=-np.inf) for sizes, way in sums]
        farthest = np.fmax.reduce(ways)
        unknown = np.isfinite(self._updates.values).sum(axis=0) < self._min_points
        return np.asarray(np.where(unknown | ~(farthest > 0), np.inf, farthest))

    def _gains(self, sizes: Floats) -> Floats:
        """Return the length of each update divided by its driving size, shape (C, P)."""
        gains = self._updates.values / sizes[:, None]
        return np.where(np.isfinite(gains), gains, -np.inf)


def adaptive_reach(moved: Series, rate: Series, facts: Manifest | None) -> Floats:
    """Return the norm of an update that moves each element by one learning rate, shape (T, P); 0 if it is unknown.

    Infinite beyond the end of the log.
    """
    reach = np.asarray(
        np.nan_to_num(at(rate, moved.steps).values) * np.nan_to_num(np.sqrt(table_of(facts).elements(moved.labels)))
    )
    reach[is_past_end(moved.steps, rate.steps[rate.finite[:, 0]])] = np.inf
    return reach


def _way(steps: Steps, rate: Series) -> Floats:
    """Return the sum of learning rates from each checkpoint to the next, at least one step at the largest rate, shape (T-1,).

    Between two log lines the larger of their rates counts. Beyond the last line nothing is known, and the sum is infinite.
    """
    times, rates = rate.finite_points()
    if not len(times):
        return np.full(len(steps) - 1, np.inf)
    summed = np.cumsum(np.maximum(rates, np.concatenate([rates[:1], rates[:-1]])) * np.diff(times, prepend=0))
    way = np.maximum(np.diff(np.interp(steps, times, summed)), rates.max(initial=1e-300))
    return np.asarray(np.where(is_past_end(steps[1:], times), np.inf, way))


def is_past_end(steps: Steps, times: Steps) -> NDArray[np.bool_]:
    """Tell which steps lie beyond the end of a log by more than the largest distance between its lines."""
    if not len(times):
        return np.ones(len(steps), bool)
    return np.asarray(steps > times[-1] + np.diff(times, prepend=0).max())


def rates_at(steps: Steps, rate: Series | None) -> Floats:
    """Return the learning rate at each step; 1 if it is unknown or not positive."""
    if rate is None:
        return np.ones(len(steps))
    rates = at(rate, steps).values[:, 0]
    return np.where(rates > 0, rates, 1.0)
