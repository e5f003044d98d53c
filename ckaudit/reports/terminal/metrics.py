"""Metrics on a screen: a line for each with its last value, trend and shape, followed by metrics without a value."""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ckaudit.audit.measure import SHAPE, LabelSummary, MeasuredMetric, Measurement, label_summaries, worst_label
from ckaudit.contract.schema.metrics import Missing
from ckaudit.contract.schema.numbers import Number, encode_float, finite
from ckaudit.reports.terminal.charts import CROSS, LEVELS, heatmap, ranked, sparkline
from ckaudit.reports.terminal.screen_text import MAX_COLUMNS, abbreviate, columns, paint, paragraph, printable, wrap
from ckaudit.reports.view import View
from ckaudit.reports.words import number
from ckaudit.run.series import Series
from ckaudit.wording import plural

ARROWS = {"rising": "\N{UPWARDS ARROW}", "falling": "\N{DOWNWARDS ARROW}", "steady": "\N{RIGHTWARDS ARROW}", None: ""}

PLAIN_ARROWS = {"rising": "up", "falling": "down", "steady": "flat", None: ""}

HEAD = ("metric", "last", "trend", "shape", "unit", "points", "step", "where", "of")

RIGHT = ("last", "points", "step", "of")

SHORT_SHAPE = 12

# Columns that shrink on narrow screens, in this order, and to how many characters; 0: the column is dropped.
GIVING_WAY = (
    ("unit", 10),
    ("step", 0),
    ("shape", SHORT_SHAPE),
    ("where", 24),
    ("points", 0),
    ("where", 16),
    ("metric", 20),
    ("unit", 0),
    ("where", 12),
    ("of", 0),
    ("where", 0),
    ("shape", 0),
    ("trend", 0),
)

REASONS = {"not_recorded": "not recorded", "not_in_these_steps": "not in these steps", "broke": "broken"}

DOTS = "\N{HORIZONTAL ELLIPSIS}"

NARROW = str.maketrans(dict.fromkeys([*LEVELS, CROSS, DOTS, *filter(None, ARROWS.values())], "#"))

LEGEND = {"of": "of several labels the worst is shown", "trend": "the trend is that of the second half of the points"}


class TableLine(Struct, frozen=True):
    """A line of the table: the cells by heading, and whether the value is not finite; or a sentence across all columns."""

    cells: dict[str, str] = {}
    broken: bool = False
    sentence: str = ""


def draw(measurement: Measurement, view: View, *, each_label: bool = False, max_labels: int | None = 20) -> str:
    """Return the table.

    Args:
        measurement: The metrics.
        view: What the screen can do.
        each_label: Show all labels of each metric below it, not only the extreme one.
        max_labels: Number of labels shown per metric; None: all.
    """
    room = max(view.columns(), view.width or 0)
    width = min(MAX_COLUMNS, room)
    lines = [
        line for measured in measurement.measured for line in _lines(measured, view, each_label=each_label, max_labels=max_labels)
    ]
    drawn = [*_table(lines, view, room), ""] if lines else []
    if each_label and len(measurement.measured) == 1:
        drawn += picture(measurement.measured[0], view, width)
    drawn += _missing(measurement, view, width)
    for note in measurement.notes:
        drawn += paragraph(printable(note, view), width, first="note: ", indent="")
    return "\n".join(drawn) + "\n"


def _lines(measured: MeasuredMetric, view: View, *, each_label: bool, max_labels: int | None) -> Iterator[TableLine]:
    first = worst_label(measured)
    count = len(measured.series.labels)
    several = {"where": printable(first.label, view), "of": f"{count:,}"} if count > 1 else {}
    line = _line(measured.name, measured, first, view, points=measured.series.points)
    yield TableLine(line.cells | several, line.broken)
    if each_label and count > 1:
        yield from (
            _line(f"  {label.label}", measured, label, view, points=label.points)
            for label in label_summaries(measured, max_labels=max_labels)
        )
        if max_labels is not None and count > max_labels:
            yield TableLine(sentence=f"  ... and {count - max_labels:,} more (--all)")


def _line(name: str, measured: MeasuredMetric, outline: LabelSummary, view: View, *, points: int) -> TableLine:
    cells = {
        "metric": printable(name, view),
        "last": number(outline.last),
        "trend": (ARROWS if view.unicode else PLAIN_ARROWS)[outline.trend],
        "shape": sparkline(outline.shape, width=SHAPE, unicode=view.unicode),
        "short": sparkline(outline.shape, width=SHORT_SHAPE, unicode=view.unicode),
        "unit": "" if measured.unit == "1" else printable(measured.unit, view),
        "points": f"{points:,}",
        "step": f"{outline.step:,}",
    }
    return TableLine(cells, finite(outline.last) is None)


def _table(lines: Sequence[TableLine], view: View, width: int) -> Iterator[str]:
    """Yield heading and lines without the columns that do not fit, followed by a list of these."""
    widths, left_out = _widths(lines, width)
    yield paint(_row({**dict(zip(HEAD, HEAD, strict=True)), "short": "shape"}, widths, view).rstrip(), "bold", view)
    for line in lines:
        text = line.sentence or _row(line.cells, widths, view).rstrip()
        last = line.cells.get("last", "")
        yield text.replace(f" {last}", " " + paint(last, "sev1", view), 1) if line.broken else text
    yield ""
    used = {name for line in lines for name, cell in line.cells.items() if cell}
    legend = "; ".join(text for name, text in LEGEND.items() if name in used and (name in widths or name == "of"))
    narrow = f"no room for {', '.join(left_out)}: --format json has everything" if left_out else ""
    prose = min(MAX_COLUMNS, width)
    yield from (paint(line, "dim", view) for text in (legend, narrow) if text for line in paragraph(text, prose, indent=""))


def _widths(lines: Sequence[TableLine], width: int) -> tuple[dict[str, int], list[str]]:
    """Return the width of each column that is shown, and the names of those that do not fit."""
    shown_at_all = [name for name in HEAD if any(line.cells.get(name) for line in lines)]
    widths = {name: max(len(name), *(size(line.cells.get(name, "")) for line in lines)) for name in shown_at_all}
    asked = dict(widths)
    for name, min_width in GIVING_WAY:
        spare = width - sum(widths.values()) - 2 * (len(widths) - 1)
        if spare >= 0:
            break
        if not min_width:
            widths.pop(name, None)
        elif widths.get(name, 0) > min_width:
            widths[name] = min_width if name == "shape" else max(min_width, widths[name] + spare)
    for name in ("metric", "unit", "where"):  # the first ones are typed by users, and shown unchanged
        if name in widths:
            spare = width - sum(widths.values()) - 2 * (len(widths) - 1)
            widths[name] = min(asked[name], widths[name] + max(spare, 0))
    return widths, [name for name in asked if name not in widths]


def _row(cells: dict[str, str], widths: dict[str, int], view: View) -> str:
    drawn = []
    for name, room in widths.items():
        text = cells.get("short" if name == "shape" and room < SHAPE else name, "")
        text = text if size(text) <= room else _cut(text, room, view, label=name == "where" or text.startswith("  "))
        drawn.append(" " * (room - size(text)) + text if name in RIGHT else text + " " * (room - size(text)))
    return "  ".join(drawn)


def _cut(text: str, room: int, view: View, *, label: bool) -> str:
    """Return the part of a text that fits; for labels, the part that distinguishes them."""
    if label:
        indent = len(text) - len(text.lstrip())
        return " " * indent + abbreviate(text.lstrip(), room - indent, unicode=view.unicode)
    dots = DOTS if view.unicode else "..."
    while size(text) > room - len(dots):
        text = text[:-1]
    return text + dots


def size(text: str) -> int:
    """Return how many columns a text takes; our own signs are measured without a library that is slow to load."""
    return columns(text.translate(NARROW))


def _missing(measurement: Measurement, view: View, width: int) -> Iterator[str]:
    """Yield one line of counts; in verbose mode the names of what has no value, and the errors."""
    have, lack = len(measurement.measured), len(measurement.missing)
    groups: dict[str, list[Missing]] = {}
    for missing in measurement.missing:
        groups.setdefault(REASONS[missing.reason], []).append(missing)
    counts = ", ".join(f"{len(members)} {reason}" for reason, members in groups.items())
    summary = f"{plural(have, 'metric')}, {lack} without a value: {counts}" if lack else plural(have, "metric")
    lines = paragraph(summary, width, indent="")
    if lack and not view.verbose:
        hint = "(-v names them)"  # never broken in two, because users type it
        lines = [*lines[:-1], f"{lines[-1]} {hint}"] if len(lines[-1]) + 1 + len(hint) <= width else [*lines, hint]
    yield from (paint(line, "dim", view) for line in lines)
    if view.verbose:
        for reason, members in groups.items():
            text = ", ".join(member.name + (f" ({member.detail})" if member.detail else "") for member in members)
            yield from paragraph(printable(text, view), width, first=f"{reason}: ", indent="")


# The chart below the table of one metric with several labels: a map of labels by steps, or ranked bars for one step.
def picture(measured: MeasuredMetric, view: View, width: int) -> list[str]:
    """Return the lines of the chart and an empty one; empty for a single label, or if no value is finite."""
    series = measured.series.recorded_rows()
    if len(series.labels) < 2:
        return []
    series = replace(series, labels=tuple(printable(label, view) for label in series.labels))
    rows = [(label, _cells(series, place)) for place, label in enumerate(series.labels)]
    if len(series.steps) == 1:
        lines = ranked([(name, values[0]) for name, values in rows], unit=measured.unit, width=width, unicode=view.unicode)
    else:
        lines = heatmap(rows, series.steps.tolist(), unit=measured.unit, width=width, unicode=view.unicode)
    title = [paint(line, "bold", view) for line in wrap(printable(measured.title, view), width)]
    return [*title, *lines, ""] if lines else []


def _cells(series: Series, place: int) -> list[Number | None]:
    cells = zip(series.values[:, place].tolist(), series.recorded[:, place].tolist(), strict=True)
    return [encode_float(value) if known else None for value, known in cells]
