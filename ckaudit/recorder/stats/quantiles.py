"""Distributions of tensor elements: samples, and quantiles and histograms of many samples at once."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ckaudit.contract.schema.checkpoint import BinRange, Histogram
from ckaudit.recorder.stats.float32_rounding import shortest_of

EXACT_UP_TO = 2**15  # elements; more would take longer than all other statistics of a tensor together
SAMPLES = 4_096
BINS = 16

T = TypeVar("T")
MAX_ELEMENTS_TOGETHER = 2**15  # elements partitioned at a time: with all derived arrays they fit into the L2 cache
TO_A_BUCKET = 8  # elements per bucket, if evenly spread: with more there is more to sort, with fewer more to count
MAX_BUCKETS = 2**13  # of one sample: all buckets of one partition have 16-bit indices
MAX_SORTED_ELEMENTS = 2**10  # elements of a sample: sorting this few is as fast as partitioning
NOTHING = np.zeros(0, np.float32)

Values: TypeAlias = NDArray[np.floating]
Whole: TypeAlias = NDArray[np.intp]


def stride_of(shape: Sequence[int], *, samples: int = SAMPLES) -> int:
    """Return the stride that takes at most `samples` elements of a tensor.

    The stride shares no factor with the last dimension: otherwise all samples would come from the same few columns.
    """
    stride = max(1, -(-math.prod(shape) // samples))
    while stride > 1 and shape and math.gcd(stride, shape[-1]) > 1:
        stride += 1
    return stride


def strided(shape: Sequence[int], exact_up_to: int = EXACT_UP_TO) -> int:
    """Return the stride for the distribution of a tensor: 1 up to `exact_up_to` elements."""
    return 1 if math.prod(shape) <= exact_up_to else stride_of(shape)


def spread_of(
    samples: Sequence[Values], levels: Sequence[float], *, bins: int = BINS
) -> tuple[list[list[float]], list[Histogram | None]]:
    """Return the quantiles of each sample, and its histogram; None for an empty one.

    Every bin includes its lower edge, the last one both edges. If all elements are equal, the bins span one unit, or twice the
    magnitude if that is more.

    Args:
        samples: Finite elements in any order.
        levels: The argument `levels` of `quantiles_of`.
        bins: Number of bins of equal width, from the smallest to the largest element.
    """
    laid = Segments.of(samples)
    ranks, share = _ranks(laid.sizes, levels)
    low, high = laid.low.astype(np.float64), laid.high.astype(np.float64)
    room = np.where(low == high, np.maximum(0.5, np.abs(low)), 0.0)
    low, high = low - room, high + room
    edges = np.arange(1, bins) * ((high - low) / bins)[:, None] + low[:, None]  # (P, bins - 1)
    marks = np.zeros((laid.sizes.size, bins + 1), np.intp)
    at, marks[:, 1:-1] = select(laid, ranks, edges)
    marks[:, -1] = laid.sizes
    written = iter(shortest_of(np.array([low, high]).T.reshape(-1)))
    counts = (marks[:, 1:] - marks[:, :-1]).tolist()
    counted = (
        Histogram(BinRange([*of], bins), in_bins) for of, in_bins in zip(zip(written, written, strict=True), counts, strict=True)
    )
    return _of_each(samples, _between(at, share), [math.nan] * len(levels)), _of_each(samples, counted, None)


def quantiles_of(samples: Sequence[Values], levels: Sequence[float]) -> list[list[float]]:
    """Return the values at levels in percent of each sample, linear between neighbours; NaN for an empty one."""
    laid = Segments.of(samples)
    ranks, share = _ranks(laid.sizes, levels)
    at, _ = select(laid, ranks, np.empty((laid.sizes.size, 0)))
    return _of_each(samples, _between(at, share), [math.nan] * len(levels))


def _ranks(sizes: Whole, levels: Sequence[float]) -> tuple[Whole, NDArray[np.float64]]:
    """Return the ranks around each level, first those below it, shape (P, 2 levels), and the fraction between the two."""
    last = (sizes - 1)[:, None]
    place = last * (np.asarray(levels) / 100)
    below = np.floor(place).astype(np.intp)
    return np.concatenate([below, np.minimum(below + 1, last)], 1), place - below


def _between(at: Values, share: NDArray[np.float64]) -> list[list[float]]:
    """Return the quantiles of each sample from the elements around each level."""
    levels = share.shape[1]
    low, high = at[:, :levels], at[:, levels:]
    quantiles: list[list[float]] = (low * (1 - share) + high * share).tolist()
    return quantiles


def _of_each(samples: Sequence[Values], of_samples: Iterable[T], nothing: T) -> list[T]:
    """Return the results of the samples that are not empty, and `nothing` for the others."""
    results = iter(of_samples)
    return [next(results) if sample.size else nothing for sample in samples]


# Order statistics of many samples, and counts below edges, without sorting the samples: elements are partitioned into consecutive
# buckets, and only the buckets that contain a requested rank or edge are sorted.
class Segments(Struct, frozen=True):
    """P concatenated samples, none of them empty.

    Attributes:
        values: All elements, finite and in any order.
        sizes: Number of elements of each sample, shape (P,).
        starts: Index of each sample's first element.
        low: Smallest element of each.
        high: Largest element of each.
    """

    values: Values
    sizes: Whole
    starts: Whole
    low: Values
    high: Values

    @classmethod
    def of(cls, samples: Sequence[Values]) -> "Segments":
        """Concatenate the samples that are not empty."""
        full = [sample for sample in samples if sample.size]
        values, sizes = np.concatenate([NOTHING, *full]), np.array([sample.size for sample in full], np.intp)
        starts = sizes.cumsum() - sizes
        return cls(values, sizes, starts, np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts))

    def together(self, max_elements: int = MAX_ELEMENTS_TOGETHER) -> Iterator[slice]:
        """Yield slices of samples that are partitioned together."""
        ends, first = [0, *self.sizes.cumsum().tolist()], 0
        while first < self.sizes.size:
            last = max(first + 1, bisect_right(ends, ends[first] + max_elements) - 1)
            yield slice(first, last)
            first = last


class Partition(Struct, frozen=True):
    """Elements of some samples and the bucket of each, counted from the first sample of `stretch`."""

    values: Values
    buckets: NDArray[np.uint16]
    stretch: slice


class Buckets(Struct, frozen=True):
    """Buckets of equal width between the extremes of each sample, concatenated for all samples.

    Attributes:
        base: Lower end of each sample's buckets, shape (P,).
        scale: Number of buckets per unit; 0 if all elements are in one bucket, because they are equal or too far apart for the
            dtype.
        first: First bucket of each sample.
        number: Number of buckets of each sample.
    """

    base: Values
    scale: Values
    first: Whole
    number: Whole

    @classmethod
    def between_ends(cls, laid: Segments) -> "Buckets":
        """Lay out the buckets of samples."""
        number = np.minimum(laid.sizes // TO_A_BUCKET + 1, MAX_BUCKETS)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            width = laid.high - laid.low
            scale = (number - 1).astype(width.dtype) / width
        is_finite = np.isfinite(width) & np.isfinite(scale)
        base, scale = np.where(is_finite, (laid.low, scale), 0).astype(width.dtype)
        return cls(base, scale, number.cumsum() - number, number)

    def deal(self, laid: Segments) -> Iterator[Partition]:
        """Partition the elements of all samples."""
        for rows in laid.together():
            sizes, start = laid.sizes[rows], laid.starts[rows.start]
            first, number = self.first[rows], self.number[rows].sum()
            values = laid.values[start : start + sizes.sum()]
            buckets = _into_buckets(values, self.base[rows].repeat(sizes), self.scale[rows].repeat(sizes))
            buckets += (first - first[0]).astype(np.uint16).repeat(sizes)
            yield Partition(values, buckets, slice(first[0], first[0] + number))

    def of(self, edges: Values, laid: Segments) -> Whole:
        """Return the bucket of each edge, shape (P, E): elements in earlier buckets are below it, those in later ones are not."""
        inside = np.fmin(np.fmax(edges, laid.low[:, None]), laid.high[:, None])
        return _into_buckets(inside, self.base[:, None], self.scale[:, None]) + self.first[:, None]


def _into_buckets(values: Values, base: Values, scale: Values) -> NDArray[np.uint16]:
    """Return the bucket of each value within its sample.

    Neither subtraction nor multiplication reverses the order of two elements, however the results are rounded.
    """
    buckets = values - base
    buckets *= scale
    return buckets.astype(np.uint16)


def select(laid: Segments, ranks: Whole, edges: NDArray[np.float64]) -> tuple[Values, Whole]:
    """Return the elements at given ranks of each sorted sample, and how many are below each edge.

    Args:
        laid: The samples.
        ranks: Ranks from 0, shape (P, R).
        edges: Edges of any value, shape (P, E).
    """
    narrow, places = _in_type_of(laid.values, edges), laid.starts[:, None] + ranks
    if laid.sizes.max(initial=0) <= MAX_SORTED_ELEMENTS:
        below = _order(laid.values, laid.starts, narrow)
        return laid.values[places], below - laid.starts[:, None]
    buckets = Buckets.between_ends(laid)
    dealt = [*buckets.deal(laid)]
    counts = np.concatenate([np.bincount(one.buckets, minlength=one.stretch.stop - one.stretch.start) for one in dealt])
    of_ranks, of_edges = counts.cumsum().searchsorted(places, "right"), buckets.of(narrow, laid)
    is_wanted = np.zeros(counts.size, bool)
    is_wanted[of_ranks] = is_wanted[of_edges] = True
    candidates = np.concatenate([one.values.compress(is_wanted[one.stretch].take(one.buckets)) for one in dealt])
    held = counts * is_wanted
    left_out = (counts - held).cumsum()  # up to each bucket
    sizes = np.add.reduceat(held, buckets.first)
    below = left_out[of_edges] + _order(candidates, sizes.cumsum() - sizes, narrow)
    return candidates[places - left_out[of_ranks]], below - laid.starts[:, None]


def _order(values: Values, starts: Whole, edges: Values) -> Whole:
    """Sort the segments of an array that begin at `starts`; return the number of elements of the array before each edge.

    Args:
        values: The array, changed in place.
        starts: Start of each segment, the first one 0, shape (P,).
        edges: Edges of each segment, shape (P, E).
    """
    below = np.empty(edges.shape, np.intp)
    for row, (start, end) in enumerate(pairwise([*starts.tolist(), values.size])):
        stretch = values[start:end]
        stretch.sort()
        below[row] = stretch.searchsorted(edges[row]) + start
    return below


def _in_type_of(values: Values, edges: NDArray[np.float64]) -> Values:
    """Return edges in the dtype of the elements, rounded up if the dtype cannot represent them.

    An element is below the rounded edge exactly if it is below the edge; converting all elements instead would take longer.
    """
    if values.dtype != np.float32:
        return edges
    narrow = edges.astype(np.float32)
    return np.where(narrow < edges, np.nextafter(narrow, np.float32(np.inf)), narrow)
