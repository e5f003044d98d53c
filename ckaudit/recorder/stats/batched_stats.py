"""Statistics of many tensors in one pass: tensors are concatenated, so that the overhead of a call is paid once."""

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, starmap
from typing import Any

import numpy as np
from msgspec import Struct

from ckaudit.contract.schema.checkpoint import PERCENTILE_LEVELS, Histogram
from ckaudit.contract.schema.numbers import Number
from ckaudit.recorder.stats.arrays import (
    Array,
    all_to_numpy,
    dense_as_numpy,
    is_on_accelerator,
    library,
    real_shape,
    square_sum,
    to_numpy,
    to_wide_float,
)
from ckaudit.recorder.stats.device_sums import StretchSums, device_sums
from ckaudit.recorder.stats.float32_rounding import shortest_of, significant_all
from ckaudit.recorder.stats.quantiles import EXACT_UP_TO, NOTHING, Values, spread_of, strided

STRETCH = 2**16  # elements processed together: as float64 they fit into the L2 cache
CANCELLED = 0.01  # share of the squares: if less remains without the mean, it is summed again, to keep its digits


class TensorMoments(Struct, frozen=True):
    """Count, mean and spread of a tensor's finite elements, and the norm of all of them; `mean_abs` is NaN unless asked for."""

    numel: int
    finite: int
    mean: float
    m2: float
    min: float
    max: float
    norm: float
    mean_abs: float
    zeros: int

    @property
    def std(self) -> float:
        """Population standard deviation, sqrt(m2 / finite)."""
        return math.sqrt(self.m2 / self.finite) if self.finite else math.nan

    @property
    def nonfinite(self) -> int:
        """Elements that are NaN or infinite."""
        return self.numel - self.finite


class SweptTensor(Struct, frozen=True):
    """Moments and sample of one tensor, from one pass.

    Attributes:
        moments: Moments of all its elements.
        sample: The finite elements among those sampled for the distribution, in no order.
        sampled: Number of sampled elements; None: all of them.
    """

    moments: TensorMoments
    sample: Values
    sampled: int | None


class WrittenStats(Struct, frozen=True):
    """Statistics of one tensor as they are written to a checkpoint.

    Attributes:
        moments: Moments of all its elements.
        numbers: Norm, mean, standard deviation, minimum, maximum and share of zeros.
        percentiles: At the contract's seven levels, with 4 digits.
        histogram: Histogram of the finite elements; None if there are none.
        sampled: Number of elements in percentiles and histogram; None: all of them.
    """

    moments: TensorMoments
    numbers: list[Number]
    percentiles: list[Number]
    histogram: Histogram | None
    sampled: int | None


def measure(
    arrays: Sequence[Array], *, scale: float = 1.0, exact_up_to: int = EXACT_UP_TO, chunk: int = STRETCH
) -> list[WrittenStats]:
    """Return the statistics of each tensor as they are written; see `sweep`."""
    swept = sweep(arrays, scale=scale, exact_up_to=exact_up_to, chunk=chunk)
    quantiles, counted = spread_of([one.sample for one in swept], PERCENTILE_LEVELS)
    levels = significant_all(np.array(quantiles).reshape(-1, len(PERCENTILE_LEVELS)))
    return [
        WrittenStats(one.moments, numbers, percentiles, bins, one.sampled)
        for one, numbers, percentiles, bins in zip(swept, _written(swept), levels, counted, strict=True)
    ]


def _written(swept: Sequence[SweptTensor]) -> Iterator[list[Number]]:
    """Yield each tensor's numbers in the form that is written."""
    momentses = [one.moments for one in swept]
    unwritten = [(one.norm, one.mean, one.std, one.min, one.max, one.zeros / max(one.numel, 1)) for one in momentses]
    written = iter(shortest_of([number for numbers in unwritten for number in numbers]))
    return ([next(written) for _ in numbers] for numbers in unwritten)


def sweep(
    arrays: Sequence[Array], *, scale: float = 1.0, exact_up_to: int = EXACT_UP_TO, chunk: int = STRETCH, magnitudes: bool = False
) -> list[SweptTensor]:
    """Return moments and sample of each tensor, with its elements divided by `scale`.

    Args:
        arrays: Tensors of any shapes and dtypes, NumPy's or torch's.
        scale: Loss scale that they still contain.
        exact_up_to: Size up to which all elements of a tensor are in its sample; of a larger one some are.
        chunk: Elements processed at a time in CPU memory.
        magnitudes: Whether to compute the mean magnitude too; on an accelerator it always is.
    """
    flats = [dense_as_numpy(array).reshape(-1) for array in arrays]
    strides = [strided(real_shape(array), exact_up_to) for array in arrays]
    by_device: dict[Any, list[int]] = {}
    for place, values in enumerate(flats):
        by_device.setdefault(values.device if is_on_accelerator(values) else None, []).append(place)
    swept: dict[int, SweptTensor] = {}
    for device, places in by_device.items():
        some, of_some = [flats[place] for place in places], [strides[place] for place in places]
        if device is None:
            results = _swept_here(some, of_some, scale, chunk, magnitudes=magnitudes)
        else:
            results = _swept_there(some, of_some, scale)
        swept.update(zip(places, results, strict=True))
    return [swept[place] for place in range(len(flats))]


def _swept_here(
    flats: Sequence[Array], strides: Sequence[int], scale: float, chunk: int, *, magnitudes: bool
) -> list[SweptTensor]:
    """Sweep tensors in CPU memory, widened a chunk at a time: a half-precision model is not copied as a whole."""
    rows: list[list[StretchSums]] = [[] for _ in flats]
    samples: list[list[Values]] = [[] for _ in flats]
    for group in stretches(flats, chunk):
        pieces: Sequence[Array] = [to_wide_float(flats[owner][start:end]) for owner, start, end in group]
        sumses, pieces = _sums_here(pieces, scale, magnitudes=magnitudes)
        for row, values, (owner, start, _) in zip(sumses, pieces, group, strict=True):
            rows[owner].append(row)
            # A sample continues across chunks. A view of a few elements would keep their whole chunk in memory.
            seen = values[-start % strides[owner] :: strides[owner]]
            finite = seen if row.finite == row.size else seen[np.isfinite(seen)]
            samples[owner].append(finite.copy() if strides[owner] > 1 else finite)
    return [
        SweptTensor(
            merged_moments(sums), parts[0] if len(parts) == 1 else np.concatenate([NOTHING, *parts]), _number_seen(values, stride)
        )
        for sums, parts, values, stride in zip(rows, samples, flats, strides, strict=True)
    ]


def _swept_there(flats: Sequence[Array], strides: Sequence[int], scale: float) -> list[SweptTensor]:
    """Sweep tensors of one accelerator."""
    sums = device_sums(flats)
    samples = map(to_wide_float, all_to_numpy([values[::stride] for values, stride in zip(flats, strides, strict=True)]))
    return [
        SweptTensor(merged_moments([whole.divided_by(scale)]), sample[np.isfinite(sample)] / scale, _number_seen(values, stride))
        for whole, sample, values, stride in zip(sums, samples, flats, strides, strict=True)
    ]


def _number_seen(values: Array, stride: int) -> int | None:
    return -(-values.shape[0] // stride) if stride > 1 else None


def stretches(flats: Sequence[Array], chunk: int) -> Iterator[list[tuple[int, int, int]]]:
    """Yield chunks (tensor, start, end) to process together: at most `chunk` elements, on one device."""
    group: list[tuple[int, int, int]] = []
    room, home = 0, None
    for owner, values in enumerate(flats):
        place, max_elements = (
            (library(values), getattr(values, "device", None), values.dtype),
            chunk * (64 if is_on_accelerator(values) else 1),
        )
        for start in range(0, values.shape[0], max_elements):
            end = min(start + max_elements, values.shape[0])
            if end - start > room or place != home:
                if group:
                    yield group
                group, room = [], max_elements
            group.append((owner, start, end))
            room, home = room - (end - start), place
    if group:
        yield group


def concatenated(pieces: Sequence[Array]) -> Values:
    """Return the concatenation of pieces of one library and device, in CPU memory."""
    if len(pieces) == 1:
        return to_numpy(pieces[0])
    lib = library(pieces[0])
    return to_numpy(np.concatenate(pieces) if lib is np else lib.cat([*pieces]))


def _sums_here(pieces: Sequence[Array], scale: float, *, magnitudes: bool) -> tuple[list[StretchSums], Sequence[Values]]:
    """Return the sums of chunks, in float64, and the chunks as NumPy arrays, divided by `scale`."""
    values = concatenated(pieces)
    values = values if scale == 1.0 else values / scale
    with np.errstate(invalid="ignore", over="ignore"):
        if len(pieces) == 1:
            row = _sums_of_one(values, magnitudes=magnitudes)
            return [row if row.m2 > CANCELLED * row.squares else _by_itself(values, row.squares)], [values]
        sizes = [piece.shape[0] for piece in pieces]
        ends = [*accumulate(sizes)]
        starts = [0, *ends[:-1]]
        rows = _sums_of_many(values, sizes, starts, magnitudes=magnitudes)
    apart = [values[start:end] for start, end in zip(starts, ends, strict=True)]
    # If the mean is far from 0, the difference of two large numbers loses the spread.
    corrected = [
        row if row.m2 > CANCELLED * row.squares else _by_itself(stretch, row.squares)
        for row, stretch in zip(rows, apart, strict=True)
    ]
    return corrected, apart


def _sums_of_one(values: Values, *, magnitudes: bool) -> StretchSums:
    """Return the sums of one chunk; they are not finite if an element is not."""
    x, size = values.astype(np.float64), values.size
    squares, mean = float(square_sum(x)), float(x.sum()) / size
    low, high = float(values.min()), float(values.max())
    zeros = int(np.count_nonzero(values == 0))
    absolute = float(np.abs(x, out=x).sum()) if magnitudes else math.nan
    return StretchSums(size, size, squares, absolute, zeros, mean, squares - size * mean * mean, low, high)


def _sums_of_many(values: Values, sizes: Sequence[int], starts: Sequence[int], *, magnitudes: bool) -> Iterator[StretchSums]:
    """Yield the sums of chunks that are concatenated in `values`."""
    x, counts = values.astype(np.float64), np.array(sizes)
    mean = np.add.reduceat(x, starts) / counts
    low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    is_zero = values == 0
    zeros = np.add.reduceat(is_zero, starts, dtype=np.intp) if is_zero.any() else np.zeros_like(counts)
    absolute = np.add.reduceat(np.abs(x), starts) if magnitudes else np.full_like(mean, math.nan)
    squares = np.add.reduceat(np.multiply(x, x, out=x), starts)
    m2 = squares - counts * mean * mean
    columns = (counts, counts, squares, absolute, zeros, mean, m2, low, high)
    return starmap(StretchSums, zip(*(column.tolist() for column in columns), strict=True))


def _by_itself(stretch: Values, squares: float) -> StretchSums:
    """Return the sums of the finite elements of one chunk, with its spread from a second pass."""
    x = stretch[np.isfinite(stretch)].astype(np.float64)
    if not x.size:
        return StretchSums(stretch.size, 0, squares, 0.0, 0, 0.0, 0.0, math.inf, -math.inf)
    mean = float(x.mean())
    with np.errstate(over="ignore"):
        m2 = float(((x - mean) ** 2).sum())
    absolute, zeros = float(np.abs(x).sum()), int((x == 0).sum())
    return StretchSums(stretch.size, x.size, squares, absolute, zeros, mean, m2, float(x.min()), float(x.max()))


def merged_moments(rows: Sequence[StretchSums]) -> TensorMoments:
    r"""Return the moments of a tensor, merged from all its chunks by Chan, Golub and LeVeque (1983).

    $$\delta = \mu_b - \mu_a,\quad \mu = \mu_a + \delta\,n_b/n,\quad M = M_a + M_b + \delta^2 n_a n_b / n$$
    """
    count, mean, m2, low, high = 0, 0.0, 0.0, math.inf, -math.inf
    for row in rows:
        if not row.finite:
            continue
        delta, merged = row.mean - mean, count + row.finite
        mean, m2 = mean + delta * row.finite / merged, m2 + row.m2 + delta * delta * count * row.finite / merged
        low, high, count = min(low, row.low), max(high, row.high), merged
    squares = sum(row.squares for row in rows)
    absolute = sum(row.absolute for row in rows) / count if count else math.nan
    if not count:
        mean = m2 = low = high = math.nan
    norm = math.sqrt(squares) if squares >= 0 else math.nan
    zeros, size = sum(row.zeros for row in rows), sum(row.size for row in rows)
    return TensorMoments(size, count, mean, m2, low, high, norm, absolute, zeros)
