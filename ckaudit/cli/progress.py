"""A line on the terminal that says how far a long work is; never in a pipe or a log."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

ERASE = "\r\x1b[K"  # ECMA-48: to the line's start, erase to its end

Tick = Callable[[int, int], None]


@contextmanager
def progress(
    what: str, *, quiet: bool = False, patience: float = 0.5, every: float = 0.1, clock: Callable[[], float] = monotonic
) -> Iterator[Tick | None]:
    """Give a function to call with (done, total), or None where nobody is watching.

    Args:
        what: The work, in one word.
        quiet: Show nothing.
        patience: Seconds before the first line: short works show none.
        every: Seconds between two lines.
        clock: Where the time comes from.
    """
    stream = sys.stderr
    if quiet or not stream.isatty():
        yield None
        return
    due, drawn = clock() + patience, False

    def tick(done: int, total: int) -> None:
        nonlocal due, drawn
        if (now := clock()) >= due:
            due, drawn = now + every, True
            stream.write(f"{ERASE}{what} {done:,} of {total:,}")
            stream.flush()

    try:
        yield tick
    finally:
        if drawn:
            stream.write(ERASE)
            stream.flush()
