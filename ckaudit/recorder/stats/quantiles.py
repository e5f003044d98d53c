"""How the elements of tensors are spread: samples of them, and quantiles and histograms of many samples at once."""

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

EXACT_UP_TO = 2**15  # elements; looking at more of them costs longer than all other statistics of a tensor together
SAMPLES = 4_096
BINS = 16

T = TypeVar("T")
MAX_ELEMENTS_TOGETHER = 2**15  # elements dealt at a time: with all that is made of them they fit a processor's second cache
TO_A_BUCKET = 8  # elements, if they were spread evenly: with more there is more to sort, with fewer more to count
MAX_BUCKETS = 2**13  # of one sample at most: those of all that are dealt together have numbers of 16 bits
MAX_SORTED_ELEMENTS = 2**10  # elements of a sample: all of so few are sorted as quickly as they are dealt
NOTHING = np.zeros(0, np.float32)

Values: TypeAlias = NDArray[np.floating]
Whole: TypeAlias = NDArray[np.intp]


def stride_of(shape: Sequence[int], *, samples: int = SAMPLES) -> int:
    """Return every how many elements a tensor is sampled, so that at most `samples` are taken.

    The stride shares no factor with the last dimension: otherwise all samples would come from the same few columns.
    """
    stride = max(1, -(-math.prod(shape) // samples))
    while stride > 1 and shape and math.gcd(stride, shape[-1]) > 1:
        stride += 1
    return stride


def strided(shape: Sequence[int], exact_up_to: int = EXACT_UP_TO) -> int:
    """Return every how many elements a tensor is looked at: each one up to `exact_up_to` of them."""
    return 1 if math.prod(shape) <= exact_up_to else stride_of(shape)


def spread_of(
    samples: Sequence[Values], levels: Sequence[float], *, bins: int = BINS
) -> tuple[list[list[float]], list[Histogram | None]]:
    """Return the quantiles of each sample, and its histogram; None of an empty one.

    Every bin holds its lower edge, the last one both. Bins around equal elements are one unit wide altogether, or twice
    their magnitude where that is more.

    Args:
        samples: Finite elements in any order.
        levels: Those of `quantiles_of`.
        bins: Of equal width, from the smallest to the largest element.
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
    """Return the values at levels in percent of each sample, linear between neighbours; NaN of an empty one."""
    laid = Segments.of(samples)
    ranks, share = _ranks(laid.sizes, levels)
    at, _ = select(laid, ranks, np.empty((laid.sizes.size, 0)))
    return _of_each(samples, _between(at, share), [math.nan] * len(levels))


def _ranks(sizes: Whole, levels: Sequence[float]) -> tuple[Whole, NDArray[np.float64]]:
    """Return the ranks around each level, first those below it, shape (P, 2 levels), and how far it is from one to the next."""
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
    """Return what was found of the samples that are not empty, and `nothing` of the others."""
    results = iter(of_samples)
    return [next(results) if sample.size else nothing for sample in samples]


# Elements of many samples by their rank, and how many lie below edges, without sorting the samples: the elements of each are
# dealt into buckets that follow one another, and only the buckets that hold what is asked for are sorted.
class Segments(Struct, frozen=True):
    """P samples end to end, none of them empty.

    Attributes:
        values: All elements, finite and in any order.
        sizes: How many there are of each sample, shape (P,).
        starts: Where those of each begin.
        low: The smallest of each.
        high: The largest of each.
    """

    values: Values
    sizes: Whole
    starts: Whole
    low: Values
    high: Values

    @classmethod
    def of(cls, samples: Sequence[Values]) -> "Segments":
        """Lay out the samples that are not empty."""
        full = [sample for sample in samples if sample.size]
        values, sizes = np.concatenate([NOTHING, *full]), np.array([sample.size for sample in full], np.intp)
        starts = sizes.cumsum() - sizes
        return cls(values, sizes, starts, np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts))

    def together(self, max_elements: int = MAX_ELEMENTS_TOGETHER) -> Iterator[slice]:
        """Yield which samples are dealt together."""
        ends, first = [0, *self.sizes.cumsum().tolist()], 0
        while first < self.sizes.size:
            last = max(first + 1, bisect_right(ends, ends[first] + max_elements) - 1)
            yield slice(first, last)
            first = last


class Partition(Struct, frozen=True):
    """Elements of some samples and the bucket of each, counted from the first of those in `stretch`."""

    values: Values
    buckets: NDArray[np.uint16]
    stretch: slice


class Buckets(Struct, frozen=True):
    """Buckets of equal width between the ends of each sample, those of all samples in a row.

    Attributes:
        base: Where those of each sample begin, shape (P,).
        scale: How many there are to a unit; 0 where all elements are in one, as they are equal or too far apart for the type.
        first: The first bucket of each.
        number: How many there are of each.
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
        """Deal the elements of all samples."""
        for rows in laid.together():
            sizes, start = laid.sizes[rows], laid.starts[rows.start]
            first, number = self.first[rows], self.number[rows].sum()
            values = laid.values[start : start + sizes.sum()]
            buckets = _into_buckets(values, self.base[rows].repeat(sizes), self.scale[rows].repeat(sizes))
            buckets += (first - first[0]).astype(np.uint16).repeat(sizes)
            yield Partition(values, buckets, slice(first[0], first[0] + number))

    def of(self, edges: Values, laid: Segments) -> Whole:
        """Return the bucket of each edge, shape (P, E): elements in an earlier one lie below it, in a later one they do not."""
        inside = np.fmin(np.fmax(edges, laid.low[:, None]), laid.high[:, None])
        return _into_buckets(inside, self.base[:, None], self.scale[:, None]) + self.first[:, None]


def _into_buckets(values: Values, base: Values, scale: Values) -> NDArray[np.uint16]:
    """Return the bucket of each value among those of its sample.

    Neither subtracting nor multiplying turns the order of two elements round, however the results are rounded.
    """
    buckets = values - base
    buckets *= scale
    return buckets.astype(np.uint16)


def select(laid: Segments, ranks: Whole, edges: NDArray[np.float64]) -> tuple[Values, Whole]:
    """Return the elements of each sample that would stand at its ranks in order, and how many lie below each of its edges.

    Args:
        laid: The samples.
        ranks: From 0, shape (P, R).
        edges: Of any size, shape (P, E).
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
    """Sort the stretches of an array that begin at `starts`; return how many elements, from the array's start, lie below edges.

    Args:
        values: The array, changed in place.
        starts: The first of them is 0, shape (P,).
        edges: Of each stretch, shape (P, E).
    """
    below = np.empty(edges.shape, np.intp)
    for row, (start, end) in enumerate(pairwise([*starts.tolist(), values.size])):
        stretch = values[start:end]
        stretch.sort()
        below[row] = stretch.searchsorted(edges[row]) + start
    return below


def _in_type_of(values: Values, edges: NDArray[np.float64]) -> Values:
    """Return edges in the type of the elements, the next larger number where that has not the edge itself.

    An element is below one just where it is below the other; turning all elements to the type of the edges takes longer.
    """
    if values.dtype != np.float32:
        return edges
    narrow = edges.astype(np.float32)
    return np.where(narrow < edges, np.nextafter(narrow, np.float32(np.inf)), narrow)
