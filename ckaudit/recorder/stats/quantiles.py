"""How the elements of tensors are spread: samples of them, and quantiles and histograms of many samples at once."""

import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ckaudit.contract.schema.checkpoint import BinRange, Histogram
from ckaudit.recorder.stats.float32_rounding import shortest_of
from ckaudit.recorder.stats.quantile_select import Laid, Values, Whole, select

EXACT_UP_TO = 2**15  # elements; looking at more of them costs longer than all other statistics of a tensor together
SAMPLES = 4_096
BINS = 16

T = TypeVar("T")


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
    laid = Laid.of(samples)
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
        Histogram(BinRange([*of], bins), each) for of, each in zip(zip(written, written, strict=True), counts, strict=True)
    )
    return _of_each(samples, _between(at, share), [math.nan] * len(levels)), _of_each(samples, counted, None)


def quantiles_of(samples: Sequence[Values], levels: Sequence[float]) -> list[list[float]]:
    """Return the values at levels in percent of each sample, linear between neighbours; NaN of an empty one."""
    laid = Laid.of(samples)
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
    found: list[list[float]] = (low * (1 - share) + high * share).tolist()
    return found


def _of_each(samples: Sequence[Values], found: Iterable[T], nothing: T) -> list[T]:
    """Return what was found of the samples that are not empty, and `nothing` of the others."""
    each = iter(found)
    return [next(each) if sample.size else nothing for sample in samples]
