"""Statistics of values from their sums or from a histogram, with the error due to its bins."""

from collections.abc import Sequence
from math import inf, sqrt

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ckaudit.contract.schema.checkpoint import PERCENTILE_LEVELS

MAX_ERROR = 0.25
"""Maximum relative error of a norm or a standard deviation taken from bins; rules compare norms that differ tenfold."""

_EQUAL = 1e-4  # edges are often written in 32 bits
_HUGE = 1e300  # TensorBoard's own outermost limits

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


class ValueSums(Struct, frozen=True):
    """Sums over the values themselves, which give exact statistics.

    Attributes:
        count: Number of values.
        total: Their sum.
        squares: The sum of their squares.
        low: The smallest value; None: unknown.
        high: The largest value; None: unknown.
    """

    count: float
    total: float
    squares: float
    low: float | None = None
    high: float | None = None

    def statistics(self) -> dict[str, float]:
        r"""Return norm, mean, population standard deviation, smallest and largest value, and the number of values.

        $$\lVert x \rVert = \sqrt{\textstyle\sum x^2}, \quad \sigma^2 = \tfrac1n \textstyle\sum x^2 - \mu^2$$

        >>> ValueSums(4, 4.0, 20.0).statistics()
        {'norm': 4.47213595499958, 'numel': 4, 'mean': 1.0, 'std': 2.0}
        """
        if not 1 <= self.count < inf:
            return {}
        known: dict[str, float] = {"norm": sqrt(self.squares) if self.squares >= 0 else self.squares, "numel": int(self.count)}
        mean = self.total / self.count
        known |= {"mean": mean, "std": _deviation(self.squares / self.count, mean)}
        ends = {"min": self.low, "max": self.high}
        return known | {name: value for name, value in ends.items() if value is not None}


class Bins(Struct, frozen=True):
    """Counts between edges.

    Attributes:
        edges: n + 1 finite edges in ascending order.
        counts: n counts.
    """

    edges: Floats
    counts: Floats

    def statistics(self) -> tuple[dict[str, float | list[float]], float]:
        """Return the statistics that the bins determine accurately enough, and the maximum relative error of the norm.

        Norm and standard deviation assume values spread evenly in each bin; they are left out where another spread within the
        bins could change them by more than `MAX_ERROR`. Percentiles are off by at most the width of a bin. The smallest and the
        largest value are exact where bins are equally wide and both outer bins hold a value, as in NumPy; elsewhere they are
        left out.
        """
        count = self.counts.sum()
        if not 0 < count < inf:
            return {}, 0.0
        left, right = self.edges[:-1], self.edges[1:]
        below = np.concatenate(([0.0], np.cumsum(self.counts)))
        known: dict[str, float | list[float]] = {
            "numel": int(count),
            "percentiles": list(map(float, np.interp(np.array(PERCENTILE_LEVELS) / 100 * below[-1], below, self.edges))),
        }
        squares = (self.counts * (left * left + left * right + right * right) / 3).sum()
        low_squares, high_squares = self._bounds()
        worst = _error(sqrt(squares), sqrt(low_squares), sqrt(high_squares))
        if worst <= MAX_ERROR:
            known["norm"] = sqrt(squares)
        mean = float((self.counts * (left + right)).sum() / (2 * count))
        spread = sqrt((self.counts * (right - left) ** 2).sum() / count)
        deviation = _deviation(squares / count, mean)
        if spread <= MAX_ERROR * deviation:
            known |= {"mean": mean, "std": deviation}
        if self.is_equal() and self.counts[0] and self.counts[-1]:
            known |= {"min": float(self.edges[0]), "max": float(self.edges[-1])}
        return known, worst if "norm" in known else 0.0

    def is_equal(self) -> bool:
        """Tell whether all bins are equally wide, and wider than 0."""
        widths = np.diff(self.edges)
        return bool(widths.min() > 0 and np.ptp(widths) <= _EQUAL * widths.mean())

    def document(self) -> dict[str, object]:
        """Return the bins in the form of a checkpoint: a range where they are equally wide, else their edges."""
        ends = [float(self.edges[0]), float(self.edges[-1])]
        bins = {"range": ends, "count": len(self.counts)} if self.is_equal() else self.edges.tolist()
        return {"bins": bins, "counts": self.counts.tolist()}

    def _bounds(self) -> tuple[float, float]:
        """Return the smallest and the largest sum of squares that values in these bins can have."""
        near, far = np.abs(self.edges[:-1]), np.abs(self.edges[1:])
        straddles = (self.edges[:-1] < 0) & (self.edges[1:] > 0)
        nearest = np.where(straddles, 0.0, np.minimum(near, far))
        farthest = np.maximum(near, far)
        return float((self.counts * nearest**2).sum()), float((self.counts * farthest**2).sum())


def bins_of(edges: Sequence[float], counts: Sequence[float]) -> Bins | None:
    """Return bins, or None where edges and counts do not match, edges descend, a count is negative, or nothing is counted.

    Empty outer bins are removed, and with them edges that only represent infinity.
    """
    sides, numbers = np.array(edges, np.float64), np.array(counts, np.float64)
    if sides.ndim != 1 or len(sides) != len(numbers) + 1 or not (numbers >= 0).all():
        return None
    held = np.flatnonzero(numbers)
    if not len(held):
        return None
    sides, numbers = sides[held[0] : held[-1] + 2], numbers[held[0] : held[-1] + 1]
    if not (np.abs(sides) < _HUGE).all() or not (np.diff(sides) >= 0).all():
        return None
    return Bins(sides, numbers)


def _error(value: float, smallest: float, largest: float) -> float:
    """Return the maximum error of a value relative to the true value between two bounds; 0 where both are 0."""
    if largest == 0:
        return 0.0
    return max(value / smallest - 1, 1 - value / largest) if smallest else inf


def _deviation(mean_square: float, mean: float) -> float:
    return sqrt(max(0.0, mean_square - mean * mean)) if mean_square == mean_square else mean_square  # noqa: PLR0124  NaN
