"""Numbers as other programs write them: text or JSON values, with the words for *nothing* and for *not a number*."""

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct, field

MISSING_WORDS = frozenset({"", "none", "null", "na", "n/a", "#n/a", "nil", "-", "--"})
MAX_STEP = 2**53

_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?")


class Column(Struct, frozen=True):
    """One column of numbers.

    Attributes:
        values: None where nothing was recorded.
        faulty: Positions of cells that are neither a number nor a word for nothing.
        commas: Cells read with a decimal comma.
    """

    values: list[float | None]
    faulty: list[int] = field(default_factory=list)
    commas: int = 0


def column(cells: Sequence[str], *, decimal_comma: bool = False) -> Column:
    """Read the cells of a column.

    Args:
        cells: Text as it stands in the file.
        decimal_comma: Take "0,5" for 0.5.

    >>> column(["1e-3", "", "nan", "x"]).values
    [0.001, None, nan, None]
    """
    with suppress(ValueError):
        return Column([float(cell) if cell else None for cell in cells])
    values: list[float | None] = []
    faulty: list[int] = []
    commas = 0
    for position, cell in enumerate(cells):
        value = number(cell)
        if value is None and decimal_comma and _DECIMAL_COMMA.fullmatch(cell.strip()):
            value = float(cell.replace(",", "."))
            commas += 1
        if value is None and cell.strip().lower() not in MISSING_WORDS:
            faulty.append(position)
        values.append(value)
    return Column(values, faulty, commas)


def number(value: Any) -> float | None:
    """Return a number or its text as a float, None where it is neither.

    >>> number("1.5"), number(True), number("")
    (1.5, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None
    except OverflowError:
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]  # only an int overflows


def step_number(value: float | None) -> int | None:
    """Return a step, None where the value cannot be one: negative, broken, not finite, or beyond exact floats.

    >>> step_number(1000.0), step_number(0.5), step_number(float("nan"))
    (1000, None, None)
    """
    if value is None or not 0 <= value <= MAX_STEP or value != int(value):
        return None
    return int(value)
