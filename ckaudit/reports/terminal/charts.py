"""Charts made of characters: curves, sparklines, heat maps of places by steps, and bars."""

import math
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from ckaudit.contract.schema.numbers import Number, finite
from ckaudit.contract.schema.report import Chart, Point
from ckaudit.reports.svg.scale import part_of
from ckaudit.reports.terminal.screen_text import abbreviate, columns, pad, wrap
from ckaudit.reports.words import number
from ckaudit.wording import plural

LEVELS = " ▁▂▃▄▅▆▇█"  # eighths of a cell, from the bottom
CROSS = "\N{MULTIPLICATION SIGN}"
UNKNOWN = "\N{MIDDLE DOT}"
LENGTHS = " ▏▎▍▌▋▊▉█"  # eighths of a cell, from the left
SHADES, PLAIN_SHADES = LEVELS[1:], ".:-=+*#@"
DIGITS = re.compile(r"(\d+)")
DECADES = 2.0  # a wider span is drawn on a logarithmic scale


def draw_curve(
    chart: Chart, marks: Sequence[int | None] = (), *, sign: str = "", width: int = 80, height: int = 4, unicode: bool = True
) -> list[str]:
    """Draw a curve; each column shows the highest of its points, so that no spike is lost.

    Args:
        chart: Labels are steps, values (N,); non-finite points are crosses at the top, missing ones are gaps.
        marks: First step of each cause, marked below by the rank of the cause, from 1; None: unknown.
        sign: Sign to mark these steps with instead, if they do not belong to causes.
        width: Maximum number of columns.
        height: Number of rows of the curve.
        unicode: Whether eighths of a cell can be drawn.

    Returns:
        The lines, without title: rows, marks, then lowest, highest, last and unit. Without a finite value: a sentence instead.
    """
    known = [value for value in map(finite, chart.values) if value is not None]
    if not known:
        return ["no finite value recorded"]
    columns = _columns(chart.values, width)
    low, high = min(known), max(known)
    cells = [_stack(column, low, high, height, unicode=unicode) for column in columns]
    rows = ["".join(cell[row] for cell in cells).rstrip() for row in range(height)]
    dated = [(rank, step) for rank, step in enumerate(marks, start=1) if step is not None]
    marked = _marks(chart.labels, [(sign or str(rank), step) for rank, step in dated], len(columns))
    caption = ", ".join([*_ends(chart), *(f"{sign or f'cause {rank}'} from {step}" for rank, step in dated)])
    return [*rows, *([marked] if marked.strip() else []), caption]


def _ends(chart: Chart) -> Iterator[str]:
    """Yield the lowest, highest and last finite value with their steps: of all values, as far as the chart gives them."""
    pairs = zip(map(finite, chart.values), chart.labels, strict=True)
    drawn = [Point(label=step, value=value) for value, step in pairs if value is not None]
    unit = "" if chart.unit == "1" else f" {chart.unit}"
    last = chart.last or drawn[-1]
    points = {
        "min": chart.least or min(drawn, key=lambda point: float(point.value)),
        "max": chart.greatest or max(drawn, key=lambda point: float(point.value)),
        "last" if last.label == chart.labels[-1] else "last finite": last,
    }
    for word, point in points.items():
        yield f"{word} {number(point.value)}{unit} at {point.label}"


def sparkline(
    values: Sequence[Number | None], *, width: int, unicode: bool = True, ends: tuple[float, float] | None = None
) -> str:
    """Draw values (N,) in one row of at most `width` columns, each showing the point farthest from the median around it.

    The last value has its own column at the end, and the lowest and the highest are drawn unless one column holds both. If
    nothing is negative, zero has no bar. A value that is not finite is a cross, one not recorded a dot. `ends` are the values at
    the bottom and top, for several lines that share a scale; without them, the lowest and the highest.

    >>> sparkline([1.0, 2.0, 3.0, 8.0], width=4), sparkline([1.0, 1.0, 1.0, 1.0, 1.0, 0.0], width=3)
    ('▁▂▃█', '██ ')
    """
    known = [value for value in map(finite, values) if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    columns = [values[start:end] for start, end in pairwise([*starts(len(values), width), len(values)])]
    outermost = _farthest_from_median(known, known)
    drawn = [_one_of(columns, place, outermost) for place in range(len(columns))]
    for extreme, other in ((low, high), (high, low)):
        if extreme not in drawn:
            place = next((index for index, column in enumerate(columns) if extreme in column and drawn[index] != other), None)
            if place is not None and finite(drawn[place]) is not None:
                drawn[place] = extreme
    bottom, top = ends or (low, high)
    return "".join(_level(value, bottom, top, unicode=unicode) for value in drawn)


def starts(count: int, width: int) -> list[int]:
    """Return where each column begins if (N,) values are distributed over `width` columns; the last value has its own.

    >>> starts(3, 5), starts(7, 4)
    ([0, 1, 2], [0, 2, 4, 6])
    """
    if count <= width:
        return list(range(count))
    return [*(place * (count - 1) // (width - 1) for place in range(width - 1)), count - 1] if width > 1 else [0]


def _one_of(columns: Sequence[Sequence[Number | None]], place: int, outermost: float) -> Number | None:
    """Return the value to draw for a column: a non-finite one, the overall extreme, or the farthest from the median around it."""
    recorded = [value for value in columns[place] if value is not None]
    values = [value for value in map(finite, recorded) if value is not None]
    if len(values) < len(recorded):
        return next(value for value in recorded if finite(value) is None)
    if outermost in values:
        return outermost
    around = [value for column in columns[max(0, place - 1) : place + 2] for value in map(finite, column) if value is not None]
    return _farthest_from_median(values, around) if values else None


def _level(value: Number | None, low: float, high: float, *, unicode: bool) -> str:
    """Return one value as a bar one row high."""
    if value is None:
        return UNKNOWN if unicode else "-"
    return " " if value == 0 <= low else _stack([value], low, high, 1, unicode=unicode)


def _farthest_from_median(values: Sequence[float], around: Sequence[float]) -> float:
    """Return the value farthest from the median of those around, or 0 if there is none."""
    ranked = sorted(around)
    median = (ranked[(len(ranked) - 1) // 2] + ranked[len(ranked) // 2]) / 2 if ranked else 0.0
    return max(values, key=lambda value: abs(value - median), default=0.0)


def _columns(values: Sequence[Number | None], width: int) -> list[list[Number]]:
    """Distribute (N,) values over columns: as many columns per value as fit, or as many values per column as necessary."""
    count = len(values)
    total = count * max(1, width // count) if count <= width else width
    starts = [place * count // total for place in range(total + 1)]
    shares = [values[start : max(start + 1, end)] for start, end in pairwise(starts)]
    return [[value for value in share if value is not None] for share in shares]


def _stack(column: list[Number], low: float, high: float, height: int, *, unicode: bool) -> str:
    """Return one column from top to bottom, one character per row.

    Args:
        column: The values in this column; empty: nothing was recorded.
        low: Value at the bottom.
        high: Value at the top.
        height: Number of rows.
        unicode: Whether eighths of a cell can be drawn; without them a cell has three levels.
    """
    if any(finite(value) is None for value in column):
        return (CROSS if unicode else "x") + " " * (height - 1)
    if not column:
        return " " * height
    highest = max(value for value in map(finite, column) if value is not None)
    # At least one eighth is drawn: a recorded minimum is not a gap.
    eighths = 1 + round(part_of(highest, low, high) * (8 * height - 1)) if high > low else 4 * height
    filled = [min(8, max(0, eighths - 8 * row)) for row in range(height)]
    return "".join(LEVELS[part] if unicode else " .:#"[math.ceil(part / 8 * 3)] for part in reversed(filled))


def _marks(labels: Sequence[str], marks: Sequence[tuple[str, int]], width: int) -> str:
    """Return the line below a curve: each sign under the first point at or after its step; the first sign wins."""
    line = [" "] * width
    steps = [int(label) if label.isdecimal() else -1 for label in labels]
    for sign, step in reversed(marks):
        reached = next((index for index, known in enumerate(steps) if known >= step), None)
        if reached is not None:
            line[reached * width // len(steps)] = sign
    return "".join(line).rstrip()


def waterfall(chart: Chart, *, width: int = 80, rows: int = 24, unicode: bool = True) -> list[str]:
    """Draw one bar per block on a logarithmic axis between powers of ten, with a block's remark after its value.

    Args:
        chart: Labels are blocks, values (N,) are positive; zero, non-finite and missing values are written as text.
        width: Maximum number of columns.
        rows: Maximum number of bars; the first, last, lowest and highest and some with a remark are always among them.
        unicode: Whether eighths of a cell can be drawn.
    """
    positive = [value for value in map(finite, chart.values) if value is not None and value > 0]
    remarked = [index for index, remark in enumerate(chart.remarks) if remark]
    chosen = _shown_rows(chart.values, rows, remarked)
    names = [_tail(chart.labels[index], width // 3, unicode=unicode) for index in chosen]
    widest = max((len(name) for name in names), default=0)
    low, high = _decades(positive)
    remark_room = max((len(chart.remarks[index]) + 2 for index in remarked), default=0)
    room = max(8, width - widest - 14 - remark_room)
    lines = []
    for name, index in zip(names, chosen, strict=True):
        value = chart.values[index]
        written = "not recorded" if value is None else number(value, digits=3)
        lines.append(f"{name:<{widest}}  {_log_bar(value, low, high, room, unicode=unicode)}{written}")
        if index in remarked:
            remark = f"  {chart.remarks[index]}"
            fits = len(lines[-1]) + len(remark) <= width
            lines[-1:] = [lines[-1] + remark] if fits else [lines[-1], *(f"  {line}" for line in wrap(remark, width - 2))]
    caption = f"log axis, 1e{low:+03d} to 1e{high:+03d}" + ("" if chart.unit == "1" else f" {chart.unit}")
    left = len(chart.values) - len(chosen)
    return [*lines, caption + (f"; {len(chosen)} of {plural(len(chart.values), 'block')}" if left else "")]


def _shown_rows(values: Sequence[Number | None], rows: int, remarked: Sequence[int] = ()) -> list[int]:
    """Return the places of at most `rows` values: evenly spread, with both ends, lowest, highest and some with a remark."""
    if len(values) <= rows:
        return list(range(len(values)))
    known = [index for index, value in enumerate(values) if finite(value) is not None]
    ranked = sorted(known, key=lambda index: finite(values[index]) or 0.0)
    chosen = {*ranked[:1], *ranked[-1:], *remarked[: rows // 2]}
    evenly = {index * (len(values) - 1) // (rows - len(chosen) - 1) for index in range(rows - len(chosen))}
    return sorted(evenly | chosen)


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """Return the powers of ten that enclose positive values, at least one decade apart."""
    if not values:
        return -1, 0
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return (low, high) if high > low else (low - 1, high)


def _log_bar(value: Number | None, low: int, high: int, room: int, *, unicode: bool) -> str:
    """Return the bar of one value and a space, or nothing if the value has no logarithm."""
    known = None if value is None else finite(value)
    if known is None or known <= 0:
        return ""
    eighths = max(1, round((math.log10(known) - low) / (high - low) * room * 8))
    whole, part = divmod(eighths, 8)
    return ("█" * whole + LENGTHS[part].strip() if unicode else "#" * max(1, round(eighths / 8))) + " "


def _tail(name: str, room: int, *, unicode: bool) -> str:
    """Return the end of a name, where blocks differ."""
    ellipsis = "…" if unicode else "..."
    return name if len(name) <= room else ellipsis + name[len(ellipsis) - room :]


# A map of places by steps, and ranked bars.
def heatmap(
    rows: Sequence[tuple[str, Sequence[Number | None]]],
    steps: Sequence[int],
    *,
    unit: str = "1",
    width: int = 80,
    max_rows: int = 24,
    unicode: bool = True,
) -> list[str]:
    """Draw places by steps on one scale; each cell is the value of its stretch farthest from the median of its row.

    Args:
        rows: Names with values (T,); None: not recorded.
        steps: Shape (T,).
        unit: Unit of the values.
        width: Maximum number of columns.
        max_rows: Maximum number of rows, evenly spread over the places in the order of their numbers.
        unicode: Whether blocks of eight heights can be drawn; otherwise eight characters from light to dark are used.

    Returns:
        The lines, and the meaning of the signs; empty if no value is finite.
    """
    known = [value for _, values in rows for value in map(finite, values) if value is not None]
    if not known:
        return []
    ordered = sorted(rows, key=lambda row: natural(row[0]))
    shown = (
        [ordered[place * (len(ordered) - 1) // max(1, max_rows - 1)] for place in range(max_rows)]
        if len(ordered) > max_rows
        else ordered
    )
    names = [abbreviate(name, width // 3, unicode=unicode) for name, _ in shown]
    widest = max(map(columns, names))
    log = min(known) > 0 and math.log10(max(known) / min(known)) > DECADES
    low, high = (math.log10(min(known)), math.log10(max(known))) if log else (min(known), max(known))
    edges = [*starts(len(steps), max(1, width - widest - 2)), len(steps)]
    lines = []
    for name, (_, values) in zip(names, shown, strict=True):
        cells = [_shade(_outlier_of_stretch(values, part), low, high, log=log, unicode=unicode) for part in pairwise(edges)]
        lines.append(f"{pad(name, widest)}  {''.join(cells)}".rstrip())
    shades = SHADES if unicode else PLAIN_SHADES
    behind = "" if unit == "1" else f" {unit}"
    caption = f"steps {steps[0]:,} to {steps[-1]:,}; {shades[0]} {number(min(known))}, {shades[-1]} {number(max(known))}{behind}"
    caption += ", log scale" if log else ""
    caption += f"; {len(shown)} of {len(rows):,} places" if len(shown) < len(rows) else ""
    return [*lines, *wrap(caption, width)]


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts names by the numbers in them.

    >>> sorted(["block.10", "block.9", "head"], key=natural)
    ['block.9', 'block.10', 'head']
    """
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in DIGITS.split(name)]


def _outlier_of_stretch(values: Sequence[Number | None], part: tuple[int, int]) -> Number | None:
    """Return the value to draw for a stretch: a non-finite one, or the farthest from the row's median; None: there is none."""
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
    share = part_of(place, low, high) if high > low else 0.5
    return (SHADES if unicode else PLAIN_SHADES)[min(7, max(0, round(share * 7)))]


def ranked(
    rows: Sequence[tuple[str, Number | None]], *, unit: str = "1", width: int = 80, max_bars: int = 24, unicode: bool = True
) -> list[str]:
    """Draw one bar per value, starting at zero, in descending order of magnitude; non-finite values come first, without a bar.

    Args:
        rows: Names with values; None: not recorded.
        unit: Unit of the values.
        width: Maximum number of columns.
        max_bars: Maximum number of bars.
        unicode: Whether eighths of a cell can be drawn.
    """
    known = [abs(value) for value in (finite(value) for _, value in rows) if value is not None]
    if not known:
        return []
    order = sorted(rows, key=lambda row: -abs(at) if (at := finite(row[1])) is not None else -math.inf if row[1] else math.inf)
    shown = order[:max_bars]
    names = [abbreviate(name, width // 3, unicode=unicode) for name, _ in shown]
    texts = ["not recorded" if value is None else number(value, digits=3) for _, value in shown]
    widest, longest = max(map(columns, names)), max(map(len, texts))
    room = max(8, width - widest - longest - 4)
    lines = [
        f"{pad(name, widest)}  {text:>{longest}}  {_bar(value, max(known), room, unicode=unicode)}".rstrip()
        for name, text, (_, value) in zip(names, texts, shown, strict=True)
    ]
    left = f"{len(shown)} of {len(rows):,} are drawn" if len(shown) < len(rows) else ""
    caption = ", ".join(part for part in (f"from 0 to {number(max(known))}{'' if unit == '1' else f' {unit}'}", left) if part)
    return [*lines, *wrap(caption, width)]


def _bar(value: Number | None, greatest: float, room: int, *, unicode: bool) -> str:
    known = None if value is None else finite(value)
    if known is None:
        return ""
    eighths = round(abs(known) / greatest * room * 8) if greatest > 0 else 0
    whole, part = divmod(eighths, 8)
    return "█" * whole + LENGTHS[part].strip() if unicode else "#" * round(eighths / 8)
