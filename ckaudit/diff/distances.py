"""Distances of two distributions, matrices or rankings in plain Python, so that a comparison of two files starts fast."""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from operator import gt, lt, sub
from typing import Any

from msgspec import Struct

from ckaudit.contract.schema.numbers import total

FLOOR = 1e-4  # minimum share of a bin: the usual choice, so that no logarithm is infinite
DECILES = 10  # bins of the population stability index, as in credit scoring (Siddiqi 2006)


class Distribution(Struct, frozen=True):
    """A density that is constant inside each bin.

    Attributes:
        edges: Bin edges, ascending, shape (n + 1,).
        below: Share of the values below each edge, shape (n + 1,), from 0 to 1.
        count: Number of values.
    """

    edges: Sequence[float]
    below: Sequence[float]
    count: float

    def cumulative(self, values: Sequence[float]) -> list[float]:
        """Return the share of the distribution below each of some ascending values."""
        edges, below, last = self.edges, self.below, len(self.edges) - 1
        shares, index = [], 0
        for value in values:
            while index < last and edges[index + 1] <= value:
                index += 1
            if index == last or value <= edges[0]:
                shares.append(below[index])
            else:
                low, share = edges[index], below[index]
                shares.append(share + (below[index + 1] - share) * (value - low) / (edges[index + 1] - low))
        return shares

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """Return the quantiles at ascending shares, each once."""
        values: list[float] = []
        index = 1
        for share in shares:
            while self.below[index] < share and index < len(self.below) - 1:
                index += 1
            low, high = self.below[index - 1], self.below[index]
            part = (share - low) / (high - low) if high > low else 1.0
            value = self.edges[index - 1] + part * (self.edges[index] - self.edges[index - 1])
            if not values or value > values[-1]:
                values.append(value)
        return values

    def spread(self) -> float:
        """Return the standard deviation."""
        scale = max(map(abs, self.edges)) or 1.0  # shares of the maximum, whose squares do not overflow
        edges = [edge / scale for edge in self.edges]
        parts = [(b - a, low, high) for (a, b), (low, high) in zip(pairwise(self.below), pairwise(edges), strict=True)]
        mean = total(share * (low + high) / 2 for share, low, high in parts)
        square = total(
            share * ((low - mean) ** 2 + (low - mean) * (high - mean) + (high - mean) ** 2) / 3 for share, low, high in parts
        )
        return scale * math.sqrt(max(square, 0.0))


def distribution(histogram: Mapping[str, Any]) -> Distribution | None:
    """Return the density of a histogram in a checkpoint; None if it is empty, not finite, or invalid.

    Its bins are n + 1 edges, n centres, or a range with the number of equal bins. A range of width 0 is a single value.
    """
    try:
        counts, bins = [*map(float, histogram["counts"])], histogram["bins"]
        edges = _edges(bins, len(counts))
    except (KeyError, IndexError, TypeError, ValueError, OverflowError):  # `validate` reports what is wrong with it
        return None
    count = total(counts)
    if not edges or not 0 < count < math.inf or min(counts) < 0 or not all(map(math.isfinite, edges)):
        return None
    low, high = edges[0], edges[-1]
    if high <= low:
        reach = max(abs(low), 1e-300) * 1e-12
        return Distribution((low - reach, low + reach), (0.0, 1.0), count)
    shares = [0.0, *[below / count for below in accumulate(counts)]]
    if all(map(lt, edges, edges[1:])):
        return Distribution(edges, shares, count)
    if any(map(gt, edges, edges[1:])):
        return None
    rising = [i for i in range(len(edges)) if i == 0 or edges[i] > edges[i - 1]]
    return Distribution([edges[i] for i in rising], [shares[i] for i in rising], count)


def _edges(bins: Any, count: int) -> list[float]:
    """Return n + 1 edges; empty if the number of bins is not that of counts."""
    if isinstance(bins, dict):
        low, high = map(float, bins["range"])
        return [*[low + (high - low) * i / count for i in range(count)], high] if count and bins["count"] == count else []
    edges = [*map(float, bins)]
    if len(edges) == count + 1 and count:
        return edges
    if len(edges) != count or count < 2:
        return []
    middles = [(low + high) / 2 for low, high in pairwise(edges)]
    return [2 * edges[0] - middles[0], *middles, 2 * edges[-1] - middles[-1]]


def wasserstein(left: Distribution, right: Distribution) -> float:
    r"""Return the Wasserstein distance of two densities, exact for values spread evenly inside each bin.

    $$W_1 = \int |F(x) - G(x)|\,dx$$

    F - G is linear between neighbouring edges of either, so each piece is integrated exactly, as two triangles if the sign
    changes. The unit is that of the values (Villani 2009, remark 6.5: the transport distance in one dimension).
    """
    edges = sorted({*left.edges, *right.edges})
    apart = [*map(sub, left.cumulative(edges), right.cumulative(edges))]
    total = 0.0
    for low, high, one, two in zip(edges, edges[1:], apart, apart[1:], strict=False):
        if one * two >= 0:
            total += (high - low) * abs(one + two)
        else:
            total += (high - low) * (one * one + two * two) / abs(one - two)
    return total / 2


def stability_index(left: Distribution, right: Distribution, *, bins: int = DECILES, floor: float = FLOOR) -> float:
    r"""Return the population stability index over the deciles of the left density.

    $$PSI = \sum_i (q_i - p_i) \ln \frac{q_i}{p_i}$$

    p and q are the shares of left and right in each bin, at least `floor`; the outermost bins extend to infinity. Below 0.1 is no
    shift, above 0.25 a large one (Siddiqi 2006, Credit Risk Scorecards).
    """
    inner = left.quantiles([i / bins for i in range(1, bins)])
    p, q = ([0.0, *density.cumulative(inner), 1.0] for density in (left, right))
    shares = zip(pairwise(p), pairwise(q), strict=True)
    floored = [(max(b - a, floor), max(d - c, floor)) for (a, b), (c, d) in shares]
    return total((other - one) * math.log(other / one) for one, other in floored)


def expected_stability_index(left: Distribution, right: Distribution, *, bins: int = DECILES) -> float:
    r"""Return the mean stability index of two samples from one distribution (Yurdakul 2018, section 3).

    $$(B - 1) (1/n + 1/m)$$
    """
    return (bins - 1) * (1 / left.count + 1 / right.count)


def relative_distance(left: Sequence[float], right: Sequence[float]) -> float:
    r"""Return the distance of two matrices relative to the norm of the left one; infinite if that is 0.

    $$\lVert A - B \rVert_F / \lVert A \rVert_F$$

    >>> relative_distance([3.0, 4.0], [3.0, 9.0])
    1.0
    """
    apart, size = math.dist(left, right), math.hypot(*left)
    return apart / size if size else (math.inf if apart else 0.0)


def rank_correlation(left: Sequence[float], right: Sequence[float]) -> float | None:
    r"""Return Spearman's rank correlation, with mean ranks for ties; None for fewer than three values, or constant ones.

    $$\rho = \operatorname{corr}(\operatorname{rank} x, \operatorname{rank} y)$$

    >>> rank_correlation([1.0, 2.0, 3.0], [10.0, 30.0, 20.0])
    0.5
    """
    count = len(left)
    if count < 3:
        return None
    x, y = ([rank - (count - 1) / 2 for rank in _ranks(values)] for values in (left, right))
    size = math.sqrt(math.fsum(a * a for a in x) * math.fsum(b * b for b in y))
    return math.fsum(a * b for a, b in zip(x, y, strict=True)) / size if size else None


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks, start = [0.0] * len(values), 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for place in order[start:end]:
            ranks[place] = (start + end - 1) / 2
        start = end
    return ranks
