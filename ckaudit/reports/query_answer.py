"""The answer to an SQL query: a table on a screen, CSV, or JSON; the last two are written row by row."""

from collections.abc import Iterator, Sequence
from itertools import islice
from math import isfinite
from typing import Any, BinaryIO

import msgspec

from ckaudit.contract.schema.numbers import encode_float
from ckaudit.reports.metric_series import quoted
from ckaudit.reports.terminal.screen_text import columns, pad, paint, printable
from ckaudit.reports.view import View
from ckaudit.wording import plural

MAX_ROWS = 200
WIDEST, LEAST = 100, 8
GAP = "  "


def table(names: Sequence[str], rows: Iterator[Sequence[Any]], view: View) -> Iterator[str]:
    """Yield the lines of a table with the first 200 rows, cut to the screen, and how many more there are."""
    shown = [[printable(_text(cell, empty="-"), view) for cell in row] for row in islice(rows, MAX_ROWS)]
    more = sum(1 for _ in rows)
    heads = [printable(name, view) for name in names]
    right = [bool(shown) and all(_is_number(row[at]) for row in shown) for at in range(len(heads))]
    asked = [max(map(columns, [head, *(row[at] for row in shown)])) for at, head in enumerate(heads)]
    widths = _fitting([min(WIDEST, width) for width in asked], view.width)

    def line(cells: Sequence[str]) -> str:
        drawn = (pad(_cut(cell, width, view), width, right=end) for cell, width, end in zip(cells, widths, right, strict=True))
        return GAP.join(drawn).rstrip()

    yield paint(line(heads), "bold", view)
    yield from map(line, shown)
    if more:
        yield paint(f"{plural(more, 'more row')}: --format csv or json has all", "dim", view)
    elif not shown:
        yield paint("no rows", "dim", view)


def _fitting(widths: list[int], room: int | None) -> list[int]:
    """Return widths that fit the screen: the widest column shrinks first."""
    while room and sum(widths) + len(GAP) * (len(widths) - 1) > room and max(widths) > LEAST:
        widest = max(range(len(widths)), key=widths.__getitem__)
        second = max([LEAST, *(width for width in widths if width < widths[widest])])
        over = sum(widths) + len(GAP) * (len(widths) - 1) - room
        widths[widest] = max(second, widths[widest] - over, LEAST) if second < widths[widest] else widths[widest] - 1
    return widths


def _cut(text: str, width: int, view: View) -> str:
    if columns(text) <= width:
        return text
    dots = "\N{HORIZONTAL ELLIPSIS}" if view.unicode else "..."
    while text and columns(text) > width - len(dots):
        text = text[:-1]
    return text + dots


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text == "-"
    return True


def write_csv(names: Sequence[str], rows: Iterator[Sequence[Any]], sink: BinaryIO) -> None:
    """Write RFC 4180: null is an empty cell, lists and maps are JSON."""
    sink.write((",".join(map(quoted, names)) + "\n").encode())
    sink.writelines((",".join(quoted(_text(cell, empty="")) for cell in row) + "\n").encode() for row in rows)


def write_json(names: Sequence[str], rows: Iterator[Sequence[Any]], sink: BinaryIO) -> None:
    """Write a list of objects, one per line; numbers that are not finite are words, as in every document."""
    sink.write(b"[")
    for place, row in enumerate(rows):
        sink.write(b",\n" if place else b"\n")
        sink.write(msgspec.json.encode(dict(zip(names, map(_jsonable, row), strict=True))))
    sink.write(b"\n]\n")


def _text(cell: Any, *, empty: str) -> str:
    """Return a value as text: numbers in the shortest form that can be read back exactly."""
    if cell is None:
        return empty
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float):
        return repr(cell) if isfinite(cell) else str(encode_float(cell))
    if isinstance(cell, list | dict | tuple):
        return msgspec.json.encode(_jsonable(cell)).decode()
    return str(cell)


def _jsonable(cell: Any) -> Any:
    """Return a value in a form that JSON can hold; text is made harmless on output, not here."""
    if isinstance(cell, dict):
        return {str(key): _jsonable(value) for key, value in cell.items()}
    if isinstance(cell, list | tuple):
        return [_jsonable(value) for value in cell]
    if isinstance(cell, float) and not isfinite(cell):
        return encode_float(cell)
    return cell if cell is None or isinstance(cell, bool | int | float | str) else str(cell)
