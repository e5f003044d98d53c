"""The same NumPy work on many pieces at once: sorting and arithmetic on arrays leave the interpreter free."""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def on_each(function: Callable[[Piece], Result], pieces: Sequence[Piece], *, most: int = 4) -> Iterable[Result]:
    """Return what `function` makes of each piece, in their order.

    Args:
        function: Must not depend on the order of the pieces.
        pieces: Pieces of work of a few milliseconds or more.
        most: Threads at a time; results wait in memory, and more than this many gain little.
    """
    threads = min(most, os.cpu_count() or 1, len(pieces))
    if threads < 2:
        return map(function, pieces)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, pieces))
