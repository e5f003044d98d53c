"""A map of places by steps, and ranked bars, made of characters."""

import math
import re
from collections.abc import Sequence
from itertools import pairwise

from ckaudit.contract.schema.numbers import Number
from ckaudit.reports.terminal.pictures import CROSS, LENGTHS, LEVELS, UNKNOWN, finite, starts
from ckaudit.reports.terminal.text import abbreviate, columns, fit, pad
from ckaudit.reports.words import number

SHADES, PLAIN_SHADES = LEVELS[1:], ".:-=+*#@"
DIGITS = re.compile(r"(\d+)")
DECADES = 2.0  # a wider span is drawn by powers of ten


def heatmap(
    rows: Sequence[tuple[str, Sequence[Number | None]]],
    steps: Sequence[int],
    *,
    unit: str = "1",
    width: int = 80,
    max_rows: int = 24,
    unicode: bool = True,
) -> list[str]:
    """Draw places by steps, on one scale; each cell is the value of its stretch farthest from the middle of its row.

    Args:
        rows: Names with values (T,); None: not recorded.
        steps: Shape (T,).
        unit: Unit of the values.
        width: Columns at most.
        max_rows: Rows at most, evenly spread over the places in the order of their numbers.
        unicode: Whether blocks of eight heights can be drawn; without them, eight letters from light to dark.

    Returns:
        The lines, and what the signs mean; nothing where no value is finite.
    """
    known = [value for _, values in rows for value in map(finite, values) if value is not None]
    if not known:
        return []
    ordered = sorted(rows, key=lambda row: natural(row[0]))
    kept = (
        [ordered[place * (len(ordered) - 1) // max(1, max_rows - 1)] for place in range(max_rows)]
        if len(ordered) > max_rows
        else ordered
    )
    names = [abbreviate(name, width // 3, unicode=unicode) for name, _ in kept]
    widest = max(map(columns, names))
    log = min(known) > 0 and math.log10(max(known) / min(known)) > DECADES
    low, high = (math.log10(min(known)), math.log10(max(known))) if log else (min(known), max(known))
    edges = [*starts(len(steps), max(1, width - widest - 2)), len(steps)]
    lines = []
    for name, (_, values) in zip(names, kept, strict=True):
        cells = [_shade(_farthest(values, part), low, high, log=log, unicode=unicode) for part in pairwise(edges)]
        lines.append(f"{pad(name, widest)}  {''.join(cells)}".rstrip())
    shades = SHADES if unicode else PLAIN_SHADES
    said = "" if unit == "1" else f" {unit}"
    caption = f"steps {steps[0]:,} to {steps[-1]:,}; {shades[0]} {number(min(known))}, {shades[-1]} {number(max(known))}{said}"
    caption += ", log scale" if log else ""
    caption += f"; {len(kept)} of {len(rows):,} places" if len(kept) < len(rows) else ""
    return [*lines, *fit(caption, width)]


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts names by the numbers in them.

    >>> sorted(["block.10", "block.9", "head"], key=natural)
    ['block.9', 'block.10', 'head']
    """
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in DIGITS.split(name)]


def _farthest(values: Sequence[Number | None], part: tuple[int, int]) -> Number | None:
    """Return of a stretch what is not finite, or the value farthest from the median of the row; None where nothing is there."""
    recorded = [value for value in values[part[0] : part[1]] if value is not None]
    for value in recorded:
        if finite(value) is None:
            return value
    ranked = sorted(value for value in map(finite, values) if value is not None)
    middle = ranked[len(ranked) // 2] if ranked else 0.0
    return max(recorded, key=lambda value: abs(float(value) - middle), default=None)


def _shade(value: Number | None, low: float, high: float, *, log: bool, unicode: bool) -> str:
    if value is None:
        return UNKNOWN if unicode else " "
    known = finite(value)
    if known is None:
        return CROSS if unicode else "x"
    place = math.log10(known) if log else known
    share = (place - low) / (high - low) if high > low else 0.5
    return (SHADES if unicode else PLAIN_SHADES)[min(7, max(0, round(share * 7)))]


def ranked(
    rows: Sequence[tuple[str, Number | None]], *, unit: str = "1", width: int = 80, max_bars: int = 24, unicode: bool = True
) -> list[str]:
    """Draw one bar for each value from zero on, the largest first; what is no number stands above all.

    Args:
        rows: Names with values; None: not recorded.
        unit: Unit of the values.
        width: Columns at most.
        max_bars: Bars at most.
        unicode: Whether eighths of a cell can be drawn.
    """
    known = [abs(value) for value in (finite(value) for _, value in rows) if value is not None]
    if not known:
        return []
    order = sorted(rows, key=lambda row: -abs(at) if (at := finite(row[1])) is not None else -math.inf if row[1] else math.inf)
    kept = order[:max_bars]
    names = [abbreviate(name, width // 3, unicode=unicode) for name, _ in kept]
    told = ["not recorded" if value is None else number(value, digits=3) for _, value in kept]
    widest, longest = max(map(columns, names)), max(map(len, told))
    room = max(8, width - widest - longest - 4)
    lines = [
        f"{pad(name, widest)}  {text:>{longest}}  {_bar(value, max(known), room, unicode=unicode)}".rstrip()
        for name, text, (_, value) in zip(names, told, kept, strict=True)
    ]
    left = f"{len(kept)} of {len(rows):,} are drawn" if len(kept) < len(rows) else ""
    caption = ", ".join(part for part in (f"from 0 to {number(max(known))}{'' if unit == '1' else f' {unit}'}", left) if part)
    return [*lines, *fit(caption, width)]


def _bar(value: Number | None, greatest: float, room: int, *, unicode: bool) -> str:
    known = None if value is None else finite(value)
    if known is None:
        return ""
    eighths = round(abs(known) / greatest * room * 8) if greatest > 0 else 0
    whole, part = divmod(eighths, 8)
    return "█" * whole + LENGTHS[part].strip() if unicode else "#" * round(eighths / 8)
