"""Numbers as they are sent: five digits, which is more than any screen tells apart, and words where they are not finite."""

import numpy as np

from ckaudit.contract.schema.numbers import Number, to_word
from ckaudit.run.series import Floats, Mask

DIGITS = 5
OF_COLOURS = 3  # a colour tells no more apart


def short(value: float, digits: int = DIGITS) -> Number:
    """Return a number of so many digits, or the word for one that is not finite.

    >>> short(0.123456789), short(float("nan")), short(3.0)
    (0.12346, 'NaN', 3)
    """
    if not np.isfinite(value):
        return to_word(value)
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def column(values: Floats, recorded: Mask, digits: int = DIGITS) -> list[Number | None]:
    """Return values (N,) as they are sent; None where nothing was recorded."""
    cells = zip(values.tolist(), recorded.tolist(), strict=True)
    return [short(value, digits) if known else None for value, known in cells]
