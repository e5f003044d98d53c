"""Which row of a training set comes when."""

from functools import lru_cache
from random import Random


def row_number(number: int, *, rows: int | None, seed: int) -> int:
    """Return which row the `number`th one of a training is: a new one, or of a set gone through in epochs.

    Args:
        number: Rows that came before.
        rows: Rows of the set, each epoch of which has an order of its own; None: all rows are new.
        seed: Of the orders.
    """
    if rows is None:
        return number
    epoch, place = divmod(number, rows)
    return _order(epoch, rows, seed)[place]


@lru_cache(maxsize=2)
def _order(epoch: int, rows: int, seed: int) -> list[int]:
    return Random(f"{seed}/order/{epoch}").sample(range(rows), rows)
