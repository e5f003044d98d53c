"""Columns of Arrow as columns of numbers, without its functions: loading those takes longer than reading a log."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckaudit.importers.tables.numbers import Numbers, whole


def recorded(column: Any) -> NDArray[np.bool_]:
    """Return which cells of a chunked column are not null, shape (N,): the bits of its pieces, lowest first."""
    return np.concatenate([np.zeros(0, bool), *map(_recorded, column.chunks)])


def _recorded(chunk: Any) -> NDArray[np.bool_]:
    bits = chunk.buffers()[0]
    if bits is None or not chunk.null_count:
        return np.ones(len(chunk), bool)
    cells = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
    return cells[chunk.offset : chunk.offset + len(chunk)].astype(bool)


def from_floats(column: Any) -> Numbers:
    """Return a chunked column of float64 as numbers; null was not recorded."""
    if not column.null_count:
        return whole(column.to_numpy())
    known = recorded(column)
    return Numbers(np.where(known, column.to_numpy(), np.nan), known)
