"""Sums of many tensors on an accelerator, with few calls and one transfer.

A call there costs some ten microseconds, however little it does. So tensors are laid out as the rows of a few matrices, whose
rows are summed together.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ckaudit.recorder.stats.arrays import Array, all_to_numpy, library, to_device, to_float64

ROW_ELEMENTS = 2**14  # elements of a row: the partly filled last rows of 150 tensors fit into one matrix
MAX_ELEMENTS_TOGETHER = 2**22  # elements of one matrix, 32 MiB in float64


class StretchSums(Struct, frozen=True):
    """The sums of a chunk of a tensor, or of all of it: over the finite elements, except `squares`, which is over all.

    Attributes:
        size: Number of elements.
        finite: Number of finite elements.
        squares: Sum of the squares.
        absolute: Sum of the magnitudes.
        zeros: Number of zeros.
        mean: The mean.
        m2: Sum of the squared deviations from the mean.
        low: The smallest.
        high: The largest.
    """

    size: int
    finite: int
    squares: float
    absolute: float
    zeros: int
    mean: float
    m2: float
    low: float
    high: float

    def divided_by(self, scale: float) -> "StretchSums":
        """Return the sums of the same elements divided by `scale`."""
        return StretchSums(
            self.size,
            self.finite,
            self.squares / scale**2,
            self.absolute / scale,
            self.zeros,
            self.mean / scale,
            self.m2 / scale**2,
            self.low / scale,
            self.high / scale,
        )


NO_ELEMENTS = StretchSums(0, 0, 0.0, 0.0, 0, 0.0, 0.0, math.inf, -math.inf)


class _Rows(Struct, frozen=True):
    """Rows of a matrix (R, W), each with its tensor.

    Attributes:
        owners: The tensor of each row.
        lengths: Number of the tensor's elements in each row; the rest of the row repeats the last one.
        elements: The matrix.
    """

    owners: NDArray[np.intp]
    lengths: NDArray[np.intp]
    elements: Array


def device_sums(flats: Sequence[Array]) -> list[StretchSums]:
    """Return the sums of each flat tensor on one device; tensors with non-finite elements take a second pass."""
    whole = _sums_of(flats, finite_only=False)
    doubtful = [place for place, sums in enumerate(whole) if not math.isfinite(sums.squares)]
    if doubtful:
        finite = _sums_of([flats[place] for place in doubtful], finite_only=True)
        for place, sums in zip(doubtful, finite, strict=True):
            whole[place] = sums
    return whole


def _sums_of(flats: Sequence[Array], *, finite_only: bool) -> list[StretchSums]:
    owners, columns = [], []
    for rows in _matrices(flats):
        owners.append(rows.owners)
        columns.append(_columns(rows, finite_only=finite_only))
    if not columns:
        return [NO_ELEMENTS for _ in flats]
    (numbers,) = all_to_numpy([library(columns[0]).cat(columns, 1)])
    return [*_merged(flats, np.concatenate(owners), numbers.astype(np.float64))]


def _matrices(flats: Sequence[Array]) -> Iterator[_Rows]:
    """Yield tensors as rows: first the full rows, then the remainder of each. Dtypes are kept apart."""
    for dtype in dict.fromkeys(flat.dtype for flat in flats):
        of_type = [owner for owner, flat in enumerate(flats) if flat.dtype == dtype]
        yield from _full_rows(flats, of_type)
        yield from _last_rows(flats, [owner for owner in of_type if flats[owner].shape[0] % ROW_ELEMENTS])


def _full_rows(flats: Sequence[Array], owners: Sequence[int]) -> Iterator[_Rows]:
    held, of_rows, pieces = 0, list[NDArray[np.intp]](), list[Array]()
    for owner in owners:
        first, count = 0, flats[owner].shape[0] // ROW_ELEMENTS
        while first < count:
            last = min(count, first + MAX_ELEMENTS_TOGETHER // ROW_ELEMENTS - held)
            pieces.append(flats[owner][first * ROW_ELEMENTS : last * ROW_ELEMENTS].view(-1, ROW_ELEMENTS))
            of_rows.append(np.full(last - first, owner))
            held, first = held + last - first, last
            if held == MAX_ELEMENTS_TOGETHER // ROW_ELEMENTS:
                yield _joined_rows(of_rows, pieces)
                held, of_rows, pieces = 0, [], []
    if held:
        yield _joined_rows(of_rows, pieces)


def _joined_rows(of_rows: Sequence[NDArray[np.intp]], pieces: Sequence[Array]) -> _Rows:
    owners = np.concatenate(of_rows)
    return _Rows(owners, np.full(len(owners), ROW_ELEMENTS), pieces[0] if len(pieces) == 1 else library(pieces[0]).cat([*pieces]))


def _last_rows(flats: Sequence[Array], owners: Sequence[int]) -> Iterator[_Rows]:
    for begin in range(0, len(owners), MAX_ELEMENTS_TOGETHER // ROW_ELEMENTS):
        some = owners[begin : begin + MAX_ELEMENTS_TOGETHER // ROW_ELEMENTS]
        torch, home = library(flats[some[0]]), flats[some[0]].device
        tails = [flats[owner][flats[owner].shape[0] // ROW_ELEMENTS * ROW_ELEMENTS :] for owner in some]
        lengths = np.array([tail.shape[0] for tail in tails])
        starts, last = to_device(np.stack([lengths.cumsum() - lengths, lengths - 1])[:, :, None], home)
        places = starts + torch.arange(int(lengths.max()), device=home).minimum(last)  # (R, W)
        yield _Rows(np.array(some), lengths, torch.cat(tails)[places])


def _columns(rows: _Rows, *, finite_only: bool) -> Array:
    """Return the sums of each row, shape (8, R): count, squares, magnitudes, zeros, mean, deviations, smallest, largest."""
    x = to_float64(rows.elements)
    torch, width = library(x), x.shape[1]
    lengths = to_device(rows.lengths, x.device)[:, None].to(x.dtype)
    is_full = bool((rows.lengths == width).all())
    low, high = x.aminmax(dim=1)
    keep = None if is_full else torch.arange(width, device=x.device) < lengths
    squares = torch.linalg.vector_norm(x if keep is None else x.masked_fill(~keep, 0.0), dim=1).square()
    if finite_only:
        finite = x.isfinite()
        low = x.masked_fill(~finite, math.inf).amin(1)
        high = x.masked_fill(~finite, -math.inf).amax(1)
        keep = finite if keep is None else keep & finite
    count = lengths[:, 0] if keep is None or not finite_only else keep.sum(1, dtype=x.dtype)
    is_zero = x == 0
    if keep is not None:
        is_zero, x = is_zero & keep, x.masked_fill(~keep, 0.0)
    mean = x.sum(1) / count.clamp(min=1)
    absolute = torch.linalg.vector_norm(x, 1, dim=1)
    deviation = x - mean[:, None]
    m2 = torch.linalg.vector_norm(deviation if keep is None else deviation.masked_fill(~keep, 0.0), dim=1).square()
    return torch.stack([count, squares, absolute, is_zero.sum(1, dtype=x.dtype), mean, m2, low, high])


def _merged(flats: Sequence[Array], owners: NDArray[np.intp], columns: NDArray[np.float64]) -> Iterator[StretchSums]:
    """Yield the sums of each tensor, merged from those of its rows, columns (8, R)."""
    order = owners.argsort(kind="stable")
    owners, columns = owners[order], columns[:, order]
    held, starts = np.unique(owners, return_index=True)
    counts, squares, absolute, zeros, means, m2, lows, highs = columns
    with np.errstate(invalid="ignore", over="ignore"):
        finite = np.add.reduceat(counts, starts)
        mean = np.add.reduceat(counts * means, starts) / np.maximum(finite, 1)
        between = counts * (means - mean.repeat(np.diff([*starts, len(owners)]))) ** 2
        sums = [np.add.reduceat(column, starts) for column in (squares, absolute, zeros, m2 + between)]
    per_tensor = zip(finite, *sums, mean, np.minimum.reduceat(lows, starts), np.maximum.reduceat(highs, starts), strict=True)
    by_owner = dict(zip(held.tolist(), per_tensor, strict=True))
    for owner, flat in enumerate(flats):
        if owner in by_owner:
            count, square, magnitude, zero, deviations, center, low, high = map(float, by_owner[owner])
            yield StretchSums(flat.shape[0], int(count), square, magnitude, int(zero), center, deviations, low, high)
        else:
            yield NO_ELEMENTS
