"""How the elements of tensors are spread: samples of them, and quantiles and histograms of many sorted samples at once."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ckaudit.contract.tensors import BinRange, Histogram
from ckaudit.recorder.digits import shortest_of

EXACT_UP_TO = 2**15  # elements; sorting more of them costs longer than all other statistics of a tensor together
SAMPLES = 4_096
BINS = 16

Values = NDArray[np.floating]


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


def quantiles_of(ordered: Sequence[Values], levels: Sequence[float]) -> list[list[float]]:
    """Return each sorted sample's values at levels in percent, linear between neighbours; NaN of an empty one."""
    sizes = np.array([values.size for values in ordered], dtype=np.intp)
    place = np.maximum(sizes - 1, 0)[:, None] * (np.asarray(levels) / 100)  # (P, levels)
    below = np.floor(place).astype(np.intp)
    around = np.stack([below, np.minimum(below + 1, np.maximum(sizes - 1, 0)[:, None])], 1)  # (P, 2, levels)
    nothing = np.full(around.shape[1:], math.nan)
    ends = np.array([values[where] if values.size else nothing for values, where in zip(ordered, around, strict=True)], float)
    low, high = ends.reshape(-1, 2, len(levels)).swapaxes(0, 1)
    share = place - below
    found: list[list[float]] = (low * (1 - share) + high * share).tolist()
    return found


def histograms(ordered: Sequence[Values], *, bins: int = BINS) -> list[Histogram | None]:
    """Return counts of each sorted sample in bins of equal width from its smallest to its largest element; None of nothing.

    Every bin holds its lower edge, the last one both. Bins around equal elements are one unit wide altogether, or twice
    their magnitude where that is more.
    """
    ends = np.array([(values[0], values[-1]) if values.size else (0.0, 1.0) for values in ordered], np.float64).reshape(-1, 2)
    room = np.where(ends[:, 0] == ends[:, 1], np.maximum(0.5, np.abs(ends[:, 0])), 0.0)
    low, high = ends[:, 0] - room, ends[:, 1] + room
    edges = np.arange(1, bins) * ((high - low) / bins)[:, None] + low[:, None]  # (P, bins - 1)
    marks = np.zeros((len(ordered), bins + 1), np.intp)
    for row, (values, at) in enumerate(zip(ordered, _in_type_of(ordered, edges), strict=True)):
        marks[row, 1:-1], marks[row, -1] = values.searchsorted(at), values.size
    written = iter(shortest_of(np.stack([low, high], 1).reshape(-1)))
    counts = (marks[:, 1:] - marks[:, :-1]).tolist()
    return [
        Histogram(BinRange([*ends_of], bins), each) if values.size else None
        for values, ends_of, each in zip(ordered, zip(written, written, strict=True), counts, strict=True)
    ]


def _in_type_of(ordered: Sequence[Values], edges: Values) -> Iterator[Values]:
    """Yield each sample's edges in its own type, the next larger number where that has not the edge itself.

    An element is below one just where it is below the other; turning all elements to the type of the edges takes longer.
    """
    narrow = edges.astype(np.float32)
    narrow = np.where(narrow < edges, np.nextafter(narrow, np.float32(np.inf)), narrow)
    return (narrow[row] if values.dtype == np.float32 else edges[row] for row, values in enumerate(ordered))
