"""Metrics of a run that still trains: one point at a time, in O(1) or O(log W), equal to the whole series bit for bit.

Each detector keeps a bounded state and is pushed the points of one column in the order of steps. It answers as a cell of
the series would: None where not recorded, NaN where recorded as NaN.
"""

import math
from bisect import bisect_left, bisect_right, insort
from collections import deque

import numpy as np
from msgspec import Struct

from ckaudit.metrics.spikes import WINDOW
from ckaudit.run.robust import MAD_TO_SIGMA, resolution

Cell = float | None


class Average:
    """The moving average of `train_loss_ema`."""

    def __init__(self, *, beta: float = 0.98) -> None:
        """Begin before the first point; `beta` is the weight of the past."""
        self._beta = beta
        self._order = Order()
        self._sum, self._points = 0.0, 0

    def push(self, step: int, value: Cell) -> Cell:
        """Return the average after this point."""
        self._order.check(step)
        if value is None or not math.isfinite(value):
            return None if value is None else math.nan
        self._sum = self._beta * self._sum + (1 - self._beta) * value
        self._points += 1
        return self._sum / float(-np.expm1(self._points * math.log(self._beta)))


class Standing(Struct, frozen=True):
    """How a point stands to those before it.

    Attributes:
        excess: Robust standard deviations above their median, as `loss_excess`.
        over: Ratio to their median, as `loss_over_median`.
    """

    excess: Cell
    over: Cell


class Spikes:
    """The excess and the ratio over the median of the points before, as in `loss_excess` and its neighbours."""

    def __init__(self, *, window: int = WINDOW, min_spread_share: float = 1e-3) -> None:
        """Begin before the first point; see ckaudit.metrics.spikes.baseline for the parameters."""
        self._least = min_spread_share
        self._order = Order()
        self._window = Window(window)
        self._finest = Smallest(window)

    def push(self, step: int, value: Cell) -> Standing:
        """Return how this point stands to those before it, and count it among those before the next."""
        self._order.check(step)
        if value is None:
            return Standing(None, None)
        ready = self._window.is_full()
        if not math.isfinite(value):
            return Standing(math.nan, math.nan) if ready else Standing(None, None)
        standing = self._standing(value) if ready else Standing(None, None)
        self._window.push(value)
        self._finest.push(float(resolution(np.array([value]))[0]))
        return standing

    def _standing(self, value: float) -> Standing:
        median = self._window.median()
        floor = max(self._finest.smallest() / 2, self._least * abs(median))
        spread = max(MAD_TO_SIGMA * self._window.deviation(median), floor)
        return Standing(None if spread <= 0 else (value - median) / spread, None if median <= 0 else value / median)


class Share:
    """The share of the last points below a limit, as `grad_clip_rate`."""

    def __init__(self, *, below: float = 1.0, window: int = 100, min_points: int = 10) -> None:
        """Begin before the first point.

        Args:
            below: What counts is smaller; NaN is not.
            window: Points looked back on.
            min_points: Fewest points that make a share.
        """
        self._below, self._min_points = below, min_points
        self._order = Order()
        self._hits: deque[bool] = deque(maxlen=window)
        self._count = 0

    def push(self, step: int, value: Cell) -> Cell:
        """Return the share after this point."""
        self._order.check(step)
        if value is None:
            return None
        if len(self._hits) == self._hits.maxlen:
            self._count -= self._hits[0]
        self._hits.append(value < self._below)
        self._count += self._hits[-1]
        return self._count / len(self._hits) if len(self._hits) >= self._min_points else None


class Rise:
    """How far a value stands above its best so far, as `val_rise`."""

    def __init__(self) -> None:
        """Begin before the first point."""
        self._order = Order()
        self._best = math.inf

    def push(self, step: int, value: Cell) -> Cell:
        """Return the rise of this point over the best one up to it."""
        self._order.check(step)
        if value is None:
            return None
        if math.isfinite(value):
            self._best = min(self._best, value)
        if self._best == 0:
            return None
        return (value - self._best) / abs(self._best) if math.isfinite(value) else math.nan


class Order:
    """Watches that steps rise: what came after a step that is trained again is no longer the run."""

    def __init__(self) -> None:
        """Begin before any step."""
        self._last = -1

    def check(self, step: int) -> None:
        """Take the next step.

        Raises:
            ValueError: Where it does not come after the last one; the series must be begun anew.
        """
        if step <= self._last:
            raise ValueError(f"step {step} comes after step {self._last}")
        self._last = step


class Window:
    """The last numbers of a stream, kept in order: their median and their deviation from it."""

    def __init__(self, size: int) -> None:
        """Begin empty; `size` numbers are kept."""
        self._size = size
        self._numbers: deque[float] = deque()
        self._ordered: list[float] = []

    def is_full(self) -> bool:
        """Tell whether there are as many numbers as are kept."""
        return len(self._numbers) == self._size

    def push(self, number: float) -> None:
        """Add a finite number; the oldest one leaves a full window."""
        if self.is_full():
            del self._ordered[bisect_left(self._ordered, self._numbers.popleft())]
        self._numbers.append(number)
        insort(self._ordered, number)

    def median(self) -> float:
        """Return the median of a window that is not empty."""
        half = len(self._ordered) // 2
        return (self._ordered[half] + self._ordered[-half - 1]) / 2

    def deviation(self, middle: float) -> float:
        """Return the median absolute deviation from `middle`."""
        half = len(self._ordered) // 2
        below = bisect_right(self._ordered, middle)
        return (self._deviation(middle, below, half) + self._deviation(middle, below, len(self._ordered) - half - 1)) / 2

    def _deviation(self, middle: float, below: int, rank: int) -> float:
        """Return the deviation of a rank, from 0: the numbers to both sides of `middle` are two ordered rows of them."""
        ordered, wanted = self._ordered, rank + 1
        low, high = max(0, wanted - (len(ordered) - below)), min(below, wanted)
        while low < high:  # how many of the `wanted` smallest stand below the middle
            half = (low + high) // 2
            if middle - ordered[below - 1 - half] < ordered[below + wanted - half - 1] - middle:
                low = half + 1
            else:
                high = half
        farthest_below = middle - ordered[below - low] if low else -math.inf
        farthest_above = ordered[below + wanted - low - 1] - middle if wanted > low else -math.inf
        return max(farthest_below, farthest_above)


class Smallest:
    """The smallest of the last numbers of a stream."""

    def __init__(self, size: int) -> None:
        """Begin empty; `size` numbers are looked back on."""
        self._size, self._count = size, 0
        self._rising: deque[tuple[int, float]] = deque()

    def push(self, number: float) -> None:
        """Add a number; what is older and not smaller can never be the smallest again."""
        while self._rising and self._rising[-1][1] >= number:
            self._rising.pop()
        self._rising.append((self._count, number))
        self._count += 1
        if self._rising[0][0] < self._count - self._size:
            self._rising.popleft()

    def smallest(self) -> float:
        """Return the smallest number looked back on."""
        return self._rising[0][1]
