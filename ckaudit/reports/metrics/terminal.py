"""Metrics on a screen: a line for each with its last value, trend and shape; and below, what has no value."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from ckaudit.audit.measure import Measured, Measurement
from ckaudit.audit.outline import SHAPE, Outline, extreme, labels
from ckaudit.contract.metrics import Missing
from ckaudit.reports.terminal.look import paint, shown
from ckaudit.reports.terminal.paragraph import columns, paragraph
from ckaudit.reports.terminal.pictures import CROSS, LEVELS, finite, sparkline
from ckaudit.reports.terminal.verdict import NARROWEST, UNSEEN, WIDEST
from ckaudit.reports.view import View
from ckaudit.reports.words import number, plural

ARROWS = {"rising": "\N{UPWARDS ARROW}", "falling": "\N{DOWNWARDS ARROW}", "steady": "\N{RIGHTWARDS ARROW}", None: ""}
PLAIN_ARROWS = {"rising": "up", "falling": "down", "steady": "flat", None: ""}
HEAD = ("metric", "last", "trend", "shape", "unit", "points", "step", "where")
RIGHT = ("last", "points", "step")
CUT = {"where": 12, "shape": 12, "metric": 20}  # columns left on narrow screens
DROPPED = ("step", "unit", "points", "where", "shape", "trend")
GIVING_WAY = ("step", "where", "shape", "metric", "unit", "points", "where", "shape", "trend")  # first to last
REASONS = {"not_recorded": "not recorded", "not_in_these_steps": "not in these steps", "broke": "broken"}
DOTS = "\N{HORIZONTAL ELLIPSIS}"
NARROW = str.maketrans(dict.fromkeys([*LEVELS, CROSS, DOTS, *filter(None, ARROWS.values())], "#"))
SHORTEST = 12  # columns of a long unit


class Line(Struct, frozen=True):
    """One line of the table: the cells by heading, and whether the value is not finite."""

    cells: dict[str, str]
    broken: bool = False


def draw(measurement: Measurement, view: View, *, each_label: bool = False, most: int | None = 20) -> str:
    """Return the table.

    Args:
        measurement: The metrics.
        view: What the screen can do.
        each_label: Show the labels of each metric below it, not only the extreme one.
        most: Labels shown of each metric; None: all.
    """
    width = min(WIDEST, max(NARROWEST, view.width or UNSEEN))
    lines = [line for each in measurement.measured for line in _lines(each, view, each_label=each_label, most=most)]
    drawn = [*_table(lines, view, width), ""] if lines else []
    drawn += _missing(measurement, view, width)
    for note in measurement.notes:
        drawn += paragraph(shown(note, view), width, first="note: ", indent="")
    return "\n".join(drawn) + "\n"


def _lines(measured: Measured, view: View, *, each_label: bool, most: int | None) -> Iterator[Line]:
    first = extreme(measured)
    count = len(measured.series.labels)
    where = f"{first.label} (of {count:,})" if count > 1 else ""
    points = measured.series.points
    yield _line(measured.name, measured, first, view, where=where, points=points)
    if each_label and count > 1:
        yield from (_line(f"  {each.label}", measured, each, view, points=each.points) for each in labels(measured, most=most))
        if most is not None and count > most:
            yield Line({"metric": f"  ... and {count - most:,} more (--all)"})


def _line(name: str, measured: Measured, outline: Outline, view: View, *, points: int, where: str = "") -> Line:
    cells = {
        "metric": shown(name, view),
        "last": number(outline.last),
        "trend": (ARROWS if view.unicode else PLAIN_ARROWS)[outline.trend],
        "shape": sparkline(outline.shape, width=SHAPE, unicode=view.unicode),
        "short": sparkline(outline.shape, width=CUT["shape"], unicode=view.unicode),
        "unit": "" if measured.unit == "1" else shown(measured.unit, view),
        "points": f"{points:,}",
        "step": f"{outline.step:,}",
        "where": shown(where, view),
    }
    return Line(cells, finite(outline.last) is None)


def _table(lines: Sequence[Line], view: View, width: int) -> Iterator[str]:
    """Yield heading and lines, without the columns that have no room."""
    widths = _widths(lines, width)
    yield paint(_row({**dict(zip(HEAD, HEAD, strict=True)), "short": "shape"}, widths, view).rstrip(), "bold", view)
    for line in lines:
        text = _row(line.cells, widths, view).rstrip()
        last = line.cells.get("last", "")
        yield text.replace(f" {last}", " " + paint(last, "sev1", view), 1) if line.broken else text


def _widths(lines: Sequence[Line], width: int) -> dict[str, int]:
    """Return the width of each column that is shown: what can be cut gives way first, then whole columns."""
    shown_at_all = [name for name in HEAD if any(line.cells.get(name) for line in lines)]
    widths = {name: max(len(name), *(size(line.cells.get(name, "")) for line in lines)) for name in shown_at_all}
    widths |= {"unit": min(widths["unit"], SHORTEST)} if "unit" in widths else {}
    asked = dict(widths)
    for name in GIVING_WAY:
        over = sum(widths.values()) + 2 * (len(widths) - 1) - width
        if over <= 0:
            break
        if name in DROPPED and (name not in CUT or widths.get(name, 0) <= CUT[name]):
            widths.pop(name, None)
        elif name in CUT and widths.get(name, 0) > CUT[name]:
            widths[name] = CUT[name] if name == "shape" else max(CUT[name], widths[name] - over)
    for name in ("where", "metric"):
        if name in widths:
            spare = width - sum(widths.values()) - 2 * (len(widths) - 1)
            widths[name] = min(asked[name], widths[name] + max(spare, 0))
    return widths


def _row(cells: dict[str, str], widths: dict[str, int], view: View) -> str:
    drawn = []
    for name, room in widths.items():
        text = cells.get("short" if name == "shape" and room < SHAPE else name, "")
        text = text if size(text) <= room else _cut(text, room, view, tail=name == "where")
        drawn.append(" " * (room - size(text)) + text if name in RIGHT else text + " " * (room - size(text)))
    return "  ".join(drawn)


def _cut(text: str, room: int, view: View, *, tail: bool) -> str:
    """Return as much of a text as there is room for: of places the end, where they differ."""
    dots = DOTS if view.unicode else "..."
    kept = room - len(dots)
    while size(text) > kept:
        text = text[1:] if tail else text[:-1]
    return dots + text if tail else text + dots


def size(text: str) -> int:
    """Return how many columns a text takes; those of our own signs need no library that takes long to load."""
    return columns(text.translate(NARROW))


def _missing(measurement: Measurement, view: View, width: int) -> Iterator[str]:
    """Yield one line of counts; the names of what has no value, and the errors, where everything is asked for."""
    have, lack = len(measurement.measured), len(measurement.missing)
    groups: dict[str, list[Missing]] = {}
    for each in measurement.missing:
        groups.setdefault(REASONS[each.reason], []).append(each)
    counts = ", ".join(f"{len(members)} {reason}" for reason, members in groups.items())
    hint = "" if view.verbose else " (-v names them)"
    said = f"{plural(have, 'metric')}, {lack} without a value: {counts}{hint}" if lack else plural(have, "metric")
    yield from (paint(line, "dim", view) for line in paragraph(said, width, indent=""))
    if view.verbose:
        for reason, members in groups.items():
            text = ", ".join(each.name + (f" ({each.detail})" if each.detail else "") for each in members)
            yield from paragraph(shown(text, view), width, first=f"{reason}: ", indent="")
