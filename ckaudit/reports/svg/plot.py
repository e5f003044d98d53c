"""One chart of curves as SVG without scripts: axes with round numbers, curves, limits, and events as marks."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from ckaudit.contract.schema.numbers import Number, finite
from ckaudit.contract.schema.panels import Chart, Mark, Trace
from ckaudit.contract.schema.report import SEVERITIES
from ckaudit.reports.markup import Markup, join, tag
from ckaudit.reports.svg.scale import Scale, fitted, tick_text
from ckaudit.reports.words import number
from ckaudit.wording import first_names, plural

LETTER = 6.4  # pixels of a letter of the small font, on average

LEFT, RIGHT, BOTTOM = 54, 14, 36

ROW, LANE = 18, 24  # of the legend, and of marks with their numbers above

APART = 17  # pixels between two marks; closer ones become one mark with a number

ROOMY = 500  # minimum width in pixels for a legend that begins where the curves do

FEW = 40  # maximum points of a curve for which each gets a dot

COLOURS, DASHES = 6, 4

LONG, MILLION = 1e4, 1e6  # values between these are written in thousands


class MarkCluster(NamedTuple):
    """Marks that share a place in the chart, which is that of the first mark."""

    x: float
    marks: tuple[Mark, ...]


class PlotArea(NamedTuple):
    """The area in which the curves are drawn."""

    x: Scale
    y: Scale


class LegendEntry(NamedTuple):
    """One entry of the legend: its sign and its words."""

    sign: str
    words: str


def plot(chart: Chart, width: int, height: int, *, subjects: Sequence[str] = (), names: bool = True) -> Markup:
    """Return a chart of this size as parts of a picture, with its corner at the origin.

    Args:
        chart: Curves over steps.
        width: Width in pixels.
        height: Height in pixels, including legend and lanes.
        subjects: Names of the runs; two runs get one colour each, instead of one for each curve.
        names: Whether the legend shows the runs.
    """
    legend = list(_legend(chart, subjects, names=names, marked=width >= ROOMY or names))
    rows = _laid_out(legend, width)
    lanes = [lane for lane in (_of_findings(chart.marks), _of_events(chart.marks)) if lane]
    top = 10 + ROW * len({row for row, _ in rows}) + LANE * len(lanes)
    frame = _frame(chart, width, height, top)
    parts = [
        *_axes(chart, frame, width),
        *_limits(chart, frame),
        *(
            part
            for lane, marks in enumerate(lanes)
            for part in _lane(clusters(marks, frame.x), top - LANE * (len(lanes) - lane) + LANE / 2 + 3, frame)
        ),
        *(part for trace in chart.traces for part in _curve(trace, frame, style(chart, trace, len(subjects)))),
        *_entries(legend, rows),
    ]
    return join(parts, "")


def _of_findings(marks: Sequence[Mark]) -> list[Mark]:
    return [mark for mark in marks if mark.kind == "finding"]


def _of_events(marks: Sequence[Mark]) -> list[Mark]:
    return [mark for mark in marks if mark.kind != "finding"]


def _frame(chart: Chart, width: int, height: int, top: float) -> PlotArea:
    steps = [float(step) for trace in chart.traces for step in trace.x] + [float(mark.step) for mark in chart.marks]
    values = [value for trace in chart.traces for value in map(finite, trace.y) if value is not None]
    x = Scale(min(steps), max(steps) if max(steps) > min(steps) else min(steps) + 1, LEFT, width - RIGHT)
    limits = [float(value) for _, value in chart.lines if finite(value) is not None]
    return PlotArea(x, fitted(values, limits, height - BOTTOM, top, log=chart.log))


def _axes(chart: Chart, frame: PlotArea, width: int) -> Iterator[Markup]:
    """Yield the grid lines, numbers and names of both axes."""
    x, y = frame
    for value in y.ticks(max(3, int((y.start - y.end) / 34))):
        at = f"{y(value):.1f}"
        yield tag("line", x1=LEFT, x2=width - RIGHT, y1=at, y2=at, class_="grid")
        yield tag("text", _value_text(value, log=y.log), x=LEFT - 6, y=f"{y(value) + 4:.1f}", class_="end")
    for value in x.ticks(max(2, int((x.end - x.start) / 65)), whole=True):
        yield tag("line", x1=f"{x(value):.1f}", x2=f"{x(value):.1f}", y1=f"{y.start:.1f}", y2=f"{y.start + 4:.1f}", class_="grid")
        yield tag("text", tick_text(value), x=f"{x(value):.1f}", y=f"{y.start + 17:.1f}", class_="middle")
    yield tag("line", x1=LEFT, x2=width - RIGHT, y1=f"{y.start:.1f}", y2=f"{y.start:.1f}", class_="axis")
    yield tag("text", chart.x, x=f"{(x.start + x.end) / 2:.1f}", y=f"{y.start + 32:.1f}", class_="middle")
    unit = ", ".join(part for part in ("" if chart.unit == "1" else chart.unit, "log" if chart.log else "") if part)
    middle = f"{(y.start + y.end) / 2:.1f}"
    if unit:
        yield tag("text", unit, x=11, y=middle, class_="middle", transform=f"rotate(-90 11 {middle})")


def _value_text(value: float, *, log: bool) -> str:
    """Return the text of a tick on the value axis; long thousands are shortened so that they do not reach the axis name."""
    return f"{value / 1e3:g}k" if LONG <= abs(value) < MILLION else tick_text(value, powers=log)


def _limits(chart: Chart, frame: PlotArea) -> Iterator[Markup]:
    """Yield limits and baselines as dashed lines, each with its name if no other is near."""
    named: list[float] = []
    for words, value in chart.lines:
        if finite(value) is None or not frame.y.has(float(value)):
            continue
        at = frame.y(float(value))
        yield tag("line", x1=LEFT, x2=f"{frame.x.end:.1f}", y1=f"{at:.1f}", y2=f"{at:.1f}", class_="limit")
        if all(abs(at - other) > 13 for other in named):
            letters = int((frame.x.end - LEFT) / LETTER)
            below = -4 if at - frame.y.end > 20 else 13  # at the top there is no room above the line
            yield tag("text", shortened(words, letters), x=f"{frame.x.end - 3:.1f}", y=f"{at + below:.1f}", class_="end halo")
            named.append(at)


# Events: marks in a lane above the curves, and a thin line down through the curves.
def clusters(marks: Sequence[Mark], x: Scale) -> list[MarkCluster]:
    """Return marks by place; marks closer than their width share a cluster."""
    mark_clusters: list[MarkCluster] = []
    for mark in sorted(marks, key=lambda mark: mark.step):
        at = x(float(mark.step))
        if mark_clusters and at - mark_clusters[-1].x < APART:
            mark_clusters[-1] = MarkCluster(mark_clusters[-1].x, (*mark_clusters[-1].marks, mark))
        else:
            mark_clusters.append(MarkCluster(at, (mark,)))
    return mark_clusters


def gravest(marks: Sequence[Mark]) -> Mark:
    """Return the most severe mark, the first if several are equal."""
    return min(marks, key=lambda mark: SEVERITIES.index(mark.severity) if mark.severity in SEVERITIES else len(SEVERITIES))


def _lane(mark_clusters: Sequence[MarkCluster], middle: float, frame: PlotArea) -> Iterator[Markup]:
    for cluster in mark_clusters:
        worst = gravest(cluster.marks)
        x = f"{cluster.x:.1f}"
        kind = worst.severity or "event"
        if worst.kind == "finding":
            yield tag("line", x1=x, x2=x, y1=f"{middle + 6:.1f}", y2=f"{frame.y.start:.1f}", class_=f"since {kind}")
        count = (
            [tag("text", str(len(cluster.marks)), x=x, y=f"{middle - 5:.1f}", class_="count")] if len(cluster.marks) > 1 else []
        )
        shape = _down if worst.kind == "finding" else _diamond
        where = {"data_finding": worst.finding} if worst.finding is not None else {}
        yield tag(
            "g",
            tag("title", cluster_text(cluster)),
            tag("path", d=shape(cluster.x, middle)),
            *count,
            class_=f"mark {kind}",
            data_step=worst.step,
            **where,
        )


def cluster_text(cluster: MarkCluster) -> str:
    """Return what a cluster contains; findings by their codes, because their sentences are in the list of findings."""
    steps = sorted({mark.step for mark in cluster.marks})
    when = f"step {steps[0]:,}" if len(steps) == 1 else f"steps {steps[0]:,} to {steps[-1]:,}"
    what = list(dict.fromkeys(mark.code or mark.text for mark in cluster.marks))
    return f"{when}: {first_names(what, 6)}"


def _down(x: float, middle: float) -> str:
    return f"M{x - 5.5:.1f} {middle - 3:.1f}h11l-5.5 9z"


def _diamond(x: float, middle: float) -> str:
    return f"M{x:.1f} {middle - 4:.1f}l5 5l-5 5l-5 -5z"


# A curve: parts between missing values, dots if there are few, and crosses for recorded values that are not finite.
def style(chart: Chart, trace: Trace, runs: int) -> tuple[int, int]:
    """Return the numbers of a curve's colour and dashes; for two runs the colour identifies the run, the dashes the curve."""
    names = list(dict.fromkeys(trace.name for trace in chart.traces))
    place = names.index(trace.name)
    return (trace.run, place % DASHES) if runs > 1 else (place % COLOURS, place // COLOURS % DASHES)


def _curve(trace: Trace, frame: PlotArea, look: tuple[int, int]) -> Iterator[Markup]:
    colour, dash = look
    placed = [_place(step, value, frame) for step, value in zip(trace.x, trace.y, strict=True) if value is not None]
    known = [point for point in placed if point is not None]
    few = len(known) < FEW
    parts = [known] if few else _unbroken(placed)
    for part in parts:
        if len(part) > 1:
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in part)
            yield tag("polyline", points=points, class_=f"curve c{colour} d{dash}")
    for x, y in known if few else [part[0] for part in parts if len(part) == 1]:
        yield tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=2, class_=f"dot c{colour}")
    yield from _not_finite(trace, frame)


def _place(step: Number | str, value: Number, frame: PlotArea) -> tuple[float, float] | None:
    at = finite(value)
    if at is None or (frame.y.log and at <= 0):
        return None
    return frame.x(float(step)), frame.y(at)


def _unbroken(placed: Sequence[tuple[float, float] | None]) -> list[list[tuple[float, float]]]:
    parts: list[list[tuple[float, float]]] = [[]]
    for point in placed:
        if point is not None:
            parts[-1].append(point)
        elif parts[-1]:
            parts.append([])
    return [part for part in parts if part]


def _not_finite(trace: Trace, frame: PlotArea) -> Iterator[Markup]:
    """Yield a cross at the first of each series of non-finite values, and a bar at the top for as long as they last."""
    values = [(float(step), finite(value)) for step, value in zip(trace.x, trace.y, strict=True) if value is not None]
    broken = [value is None for _, value in values]
    edges = [place for place, (before, now) in enumerate(pairwise([False, *broken, False])) if before != now]
    top = frame.y.end + 3
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        first, last = frame.x(values[start][0]), frame.x(values[end - 1][0])
        yield tag("path", d=f"M{first - 4:.1f} {top - 4:.1f}l8 8m0 -8l-8 8M{first:.1f} {top:.1f}H{last:.1f}", class_="broken")


# The legend: rows of entries above the chart.
def _legend(chart: Chart, subjects: Sequence[str], *, names: bool, marked: bool) -> Iterator[LegendEntry]:
    traces = list({trace.name: trace for trace in chart.traces}.values())
    if len(subjects) > 1:
        yield from (LegendEntry(f"curve c{run} d0", f"{'AB'[run]} {subject}") for run, subject in enumerate(subjects) if names)
        if len(traces) > 1:
            yield from (LegendEntry(f"curve plain d{style(chart, trace, 2)[1]}", trace.name) for trace in traces)
    elif len(traces) > 1:
        yield from (LegendEntry("curve c{} d{}".format(*style(chart, trace, 1)), trace.name) for trace in traces)
    severities = {mark.severity for mark in _of_findings(chart.marks)} if marked else set()
    yield from (LegendEntry(f"mark {severity}", f"{severity} finding") for severity in SEVERITIES if severity in severities)
    if marked and _of_events(chart.marks):
        yield LegendEntry("mark event", "event")
    if any(finite(value) is None for trace in chart.traces for value in trace.y if value is not None):
        yield LegendEntry("broken", "not finite")


def _laid_out(legend: Sequence[LegendEntry], width: int) -> list[tuple[int, float]]:
    """Return the row and place of each entry."""
    left = float(LEFT if width >= ROOMY else 4)
    row, x, placed = 0, left, []
    letters = int((width - LEFT - RIGHT - 30) / LETTER)
    for entry in legend:
        wide = 30 + LETTER * len(shortened(entry.words, letters))
        if x > left and x + wide > width:
            row, x = row + 1, left
        placed.append((row, x))
        x += wide + 6
    return placed


def _entries(legend: Sequence[LegendEntry], rows: Sequence[tuple[int, float]]) -> Iterator[Markup]:
    for entry, (row, x) in zip(legend, rows, strict=True):
        y = 6 + ROW * row + ROW / 2
        if entry.sign.startswith("curve"):
            yield tag("line", x1=f"{x:.1f}", x2=f"{x + 22:.1f}", y1=f"{y:.1f}", y2=f"{y:.1f}", class_=entry.sign)
        elif entry.sign.startswith("mark"):
            shape = _diamond if entry.sign == "mark event" else _down
            yield tag("path", d=shape(x + 15, y - 1), class_=entry.sign)
        else:
            yield tag("path", d=f"M{x + 11:.1f} {y - 4:.1f}l8 8m0 -8l-8 8", class_=entry.sign)
        yield tag("text", shortened(entry.words, 60), x=f"{x + 27:.1f}", y=f"{y + 4:.1f}")


def shortened(words: str, max_letters: int) -> str:
    """Return words shortened in the middle to at most `max_letters` letters.

    >>> shortened("blocks.11.attention.weight", 15)
    'blocks.…weight'
    """
    if len(words) <= max_letters:
        return words
    half = max(1, (max_letters - 1) // 2)
    return f"{words[:half]}…{words[len(words) - half + 1 :]}"


def described(chart: Chart, subjects: Sequence[str] = ()) -> str:
    """Return a sentence that describes the chart, for readers who cannot see it."""
    parts = [_described(trace, subjects) for trace in chart.traces[:8]]
    findings, events = len(_of_findings(chart.marks)), len(_of_events(chart.marks))
    marked = [plural(findings, "finding")] * bool(findings) + [plural(events, "event")] * bool(events)
    return f"{chart.title}: {'; '.join(parts)}" + (f"; marked: {' and '.join(marked)}" if marked else "")


def _described(trace: Trace, subjects: Sequence[str]) -> str:
    known = [(step, value) for step, value in zip(trace.x, trace.y, strict=True) if value is not None]
    name = f"{trace.name} of {subjects[trace.run]}" if len(subjects) > 1 else trace.name
    if not known:
        return f"{name} without a value"
    return f"{name} from {number(known[0][1])} at step {known[0][0]} to {number(known[-1][1])} at step {known[-1][0]}"
