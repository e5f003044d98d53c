"""Numbers as other programs write them: single ones, and columns that distinguish *not recorded* from *recorded as NaN*."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

NO_STEP = -1
MAX_STEP = 2**53
_ROWS_AT_ONCE = 2**16  # small, so that intermediate results take little memory
MISSING_WORDS = frozenset({"", "none", "null", "na", "n/a", "#n/a", "nil", "-", "--"})
_PLAIN = {float, int}
_SPARSE = {float, int, type(None)}


class Numbers(Struct, frozen=True, eq=False):
    """One column of N cells.

    Attributes:
        values: Shape (N,); NaN where not recorded.
        recorded: Shape (N,); whether the cell holds a number or a recorded NaN.
    """

    values: NDArray[np.float64]
    recorded: NDArray[np.bool_]

    @property
    def count(self) -> int:
        """The number of recorded cells."""
        return int(np.count_nonzero(self.recorded))

    def only(self, mask: NDArray[np.bool_]) -> "Numbers":
        """Return the column with all cells outside `mask` marked as not recorded."""
        return Numbers(np.where(mask, self.values, np.nan), self.recorded & mask)

    def at(self, places: NDArray[np.int64]) -> "Numbers":
        """Return the cells at `places`, in their order."""
        return Numbers(self.values[places], self.recorded[places])

    def times(self, factor: float) -> "Numbers":
        """Return the column in another unit."""
        return Numbers(self.values * factor, self.recorded)


def counted(count: int, one: str, many: str) -> str:
    """Return a count with a phrase in singular or plural.

    >>> counted(1, "line stands", "lines stand"), counted(1200, "line stands", "lines stand")
    ('1 line stands', '1,200 lines stand')
    """
    return f"1 {one}" if count == 1 else f"{count:,} {many}"


NOT_FINITE = r"(?:nan(?:\(\w{0,12}\))?|inf(?:inity)?|1\.#(?:[qs]?nan|ind|inf)\d{0,6})"
"""A pattern for a number that is not finite, as C and the C library of Windows print it too."""

_NOT_FINITE = re.compile(rf"([-+]?)({NOT_FINITE})", re.IGNORECASE)


def count_of(text: str) -> int | None:
    """Return the count in a text; None where it holds none, or one with more digits than any real count.

    >>> count_of("12,288"), count_of("1.5"), count_of("9" * 5000)
    (12288, None, None)
    """
    digits = text.replace(",", "")
    return int(digits) if digits.isdecimal() and len(digits) < 16 else None


def counts_of(texts: Iterable[str]) -> list[int]:
    """Return the counts in texts; a text without one is left out."""
    return [count for text in texts if (count := count_of(text)) is not None]


def float_of(text: str) -> float:
    """Return the number in a text.

    Raises:
        ValueError: Where the text is not a number. A text with an underscore is not one, though Python's own `float` accepts it:
            a log with `1_1.84` means an epoch and a loss.

    >>> float_of("1e-3"), float_of(" nan"), float_of("-nan(ind)"), float_of("-1.#INF")
    (0.001, nan, nan, -inf)
    """
    if "_" in text:
        raise ValueError(text)
    try:
        return float(text)
    except ValueError:
        if not (written := _NOT_FINITE.fullmatch(text.strip())):
            raise
        return float(f"{written[1]}{'inf' if 'inf' in written[2].lower() else 'nan'}")


def number(value: Any) -> float | None:
    """Return a number or its text as a float, or None where the value is neither.

    >>> number("1.5"), number(True), number(""), number("1_1.84")
    (1.5, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float_of(value) if isinstance(value, str) else float(value)
    except ValueError:
        return None
    except OverflowError:
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]  # only an int overflows


def step_number(value: float | None) -> int | None:
    """Return a step, or None where the value cannot be one: negative, fractional, not finite, or beyond exact floats.

    >>> step_number(1000.0), step_number(0.5), step_number(float("nan"))
    (1000, None, None)
    """
    if value is None or not 0 <= value <= MAX_STEP or value != int(value):
        return None
    return int(value)


def numbers(cells: Sequence[Any]) -> Numbers:
    """Return JSON values as a column; a value that is neither a number nor the text of one is not recorded.

    >>> numbers([1, None, "2.5", "x", True]).recorded.tolist()
    [True, False, True, False, False]
    """
    types = set(map(type, cells))
    if not types <= _SPARSE:
        return numbers([number(cell) for cell in cells])
    try:
        values = np.array(cells, np.float64)
    except OverflowError:  # an integer larger than any float
        return numbers([number(cell) for cell in cells])
    recorded = np.ones(len(values), bool) if types <= _PLAIN else np.array([cell is not None for cell in cells], bool)
    return Numbers(values, recorded)


def forward_fill(steps: NDArray[np.int64], recorded: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return for each row the last known step up to it, 0 where there is none yet.

    >>> forward_fill(np.array([9, 10, 9, 20]), np.array([False, True, False, True])).tolist()
    [0, 10, 10, 20]
    """
    places = np.where(recorded & (steps != NO_STEP), np.arange(len(steps)), -1)
    latest = np.maximum.accumulate(places) if len(steps) else places
    return np.where(latest >= 0, steps[latest], 0)


def unrecorded_column(size: int) -> Numbers:
    """Return a column without any recorded cell."""
    return Numbers(np.full(size, np.nan), np.zeros(size, bool))


def fill_missing(first: Numbers, second: Numbers) -> Numbers:
    """Return the first column, with cells of the second where the first is not recorded."""
    return Numbers(np.where(first.recorded, first.values, second.values), first.recorded | second.recorded)


def recorded_in_full(values: NDArray[np.float64]) -> Numbers:
    """Return a column with all cells recorded."""
    return Numbers(values, np.ones(len(values), bool))


def ratio(part: Numbers, of: Numbers) -> Numbers | None:
    """Return one column divided by another where both are recorded and the second is above 0; None where no cell is."""
    known = part.recorded & of.recorded & (of.values > 0)
    if not known.any():
        return None
    return Numbers(np.divide(part.values, of.values, out=np.full(len(known), np.nan), where=known), known)


def aligned(series: Mapping[str, tuple[NDArray[np.int64], Numbers]]) -> tuple[NDArray[np.int64], dict[str, Numbers]]:
    """Return series with steps of their own as columns over the steps of all; of two cells at one step the later counts.

    Args:
        series: Steps, shape (N,), and N cells by name; cells at `NO_STEP` are left out.
    """
    known = [steps[steps != NO_STEP] for steps, _ in series.values()]
    all_steps = np.unique(np.concatenate(known)) if known else np.array([], np.int64)
    columns = {}
    for name, (steps, column) in series.items():
        placed = column.recorded & (steps != NO_STEP)
        places = np.searchsorted(all_steps, steps[placed])
        columns[name] = unrecorded_column(len(all_steps))
        columns[name].values[places] = column.values[placed]
        columns[name].recorded[places] = True
    return all_steps, columns


def steps_from(column: Numbers) -> NDArray[np.int64]:
    """Return steps, `NO_STEP` where the value cannot be one: not recorded, negative, fractional, not finite, too large.

    >>> steps_from(numbers([1000.0, 0.5, None, -1, float("nan")])).tolist()
    [1000, -1, -1, -1, -1]
    """
    steps = np.empty(len(column.values), np.int64)
    for first in range(0, len(steps), _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE)
        values = np.where(column.recorded[rows], column.values[rows], -1.0)
        with np.errstate(invalid="ignore"):
            good = (values >= 0) & (values <= MAX_STEP) & (values == np.floor(values))
        steps[rows] = np.where(good, values, NO_STEP)
    return steps


def without_placeholders(column: Numbers, *, share: float = 0.3, min_gaps: int = 3) -> Numbers | None:
    """Return the column without its NaN where NaN means *not recorded*, or None where NaN means NaN.

    A diverged loss is NaN from some step to the end, or now and then. A column of rare evaluations written by a data frame is
    NaN between its numbers.

    Args:
        column: In the order of the file.
        share: Share of NaN among the cells up to the last number, above which NaN means not recorded. An evaluation at every
            second row gives nearly 0.5; losses that overflow under a loss scaler stay below 0.1. In a column without numbers,
            all NaN mean not recorded.
        min_gaps: Minimum number of NaN before the last number for them to be placeholders.
    """
    broken = column.recorded & np.isnan(column.values)
    if not broken.any():
        return None
    good = np.flatnonzero(column.recorded & ~broken)
    if len(good):
        end = int(good[-1])
        between = int(np.count_nonzero(broken[:end]))
        if between < min_gaps or between <= share * np.count_nonzero(column.recorded[: end + 1]):
            return None
    return column.only(~broken)


def fullest_column(positions: Iterable[int], columns: Mapping[int, Numbers]) -> int:
    """Return the position of the column with the most numbers; the first one if several have as many."""
    return max(positions, key=lambda position: columns[position].count)


def _not_null(chunk: Any) -> NDArray[np.bool_]:
    """Return a mask of the cells of an Arrow array that are not null, from its bitmap; `pyarrow.compute` is slow to load."""
    bits = chunk.buffers()[0]
    if bits is None or not chunk.null_count:
        return np.ones(len(chunk), bool)
    cells = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
    return cells[chunk.offset : chunk.offset + len(chunk)].astype(bool)


def _cells(chunk: Any) -> NDArray[np.float64]:
    """Return the numbers of a float64 Arrow array without a copy; its own `to_numpy` loads pandas where that is installed."""
    data = chunk.buffers()[1]
    return np.frombuffer(data, np.float64, len(chunk), 8 * chunk.offset) if len(chunk) else np.empty(0)


def from_arrow(column: Any) -> Numbers:
    """Return a chunked float64 Arrow column as numbers; null is not recorded."""
    values = np.concatenate([np.empty(0), *map(_cells, column.chunks)])
    if not column.null_count:
        return recorded_in_full(values)
    recorded = np.concatenate([np.zeros(0, bool), *map(_not_null, column.chunks)])
    return Numbers(np.where(recorded, values, np.nan), recorded)
