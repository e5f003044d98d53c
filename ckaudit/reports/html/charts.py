"""The charts of the page: each with its question, controls and table, and their numbers as blocks of JSON for each tab."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ckaudit.contract.schema.numbers import Number
from ckaudit.contract.schema.panels import Chart, Mark, Panels
from ckaudit.reports.escape import visible
from ckaudit.reports.formula import readable
from ckaudit.reports.markup import Markup, join, tag, text
from ckaudit.reports.svg.picture import run_names
from ckaudit.reports.svg.static_chart import static_chart
from ckaudit.reports.words import number
from ckaudit.wording import plural

KINDS = {"lines": "Curves", "bars": "Bars", "heatmap": "Map", "ridges": "Histograms", "grids": "Sampled matrices"}

SLIDES = ("ridges", "grids")

MAX_MARKS = 40  # more are shown in the chart, and in the list of findings

MAX_ROWS = 60

Row = Sequence[str]

SUMMED = ("first", "last", "lowest", "highest", "not finite", "not recorded")
# Inside a script element only these could end it, or open a comment in it; in JSON they occur only in strings.
RISKY = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
IN_PAGE = ("title", "metrics", "formula", "note")  # these are embedded in the page


def figure(chart: Chart, names: Sequence[str] = (), findings: int = 0, *, is_first: bool = False) -> Markup:
    """Return a chart: an empty box that the script draws into.

    Args:
        chart: The chart to draw.
        names: Names of the runs, if there are two.
        findings: How many findings the page lists.
        is_first: Whether it is the first of its tab: then a static chart is shown before the script draws.
    """
    identity = f"c-{chart.id}"
    whose = [" ", run_sign(chart.run, names)] if chart.run is not None and len(names) > 1 else []
    return tag(
        "figure",
        tag("h3", chart.title, *whose, id=f"{identity}-title"),
        *_controls(chart, identity),
        tag(
            "div",
            static_chart(chart, names) if is_first else "",
            class_="plot",
            role="img",
            aria_label=f"{KINDS[chart.shape]}: {chart.title} The numbers follow as a table.",
        ),
        tag("figcaption", *_caption(chart)),
        *([_marks(chart.marks, findings)] if chart.marks else []),
        table(chart),
        id=identity,
        class_=chart.shape,
        data_chart=chart.id,
        tabindex=-1,
        aria_labelledby=f"{identity}-title",
    )


def run_sign(run: int, names: Sequence[str]) -> Markup:
    """Return the sign of one of two runs: its colour, its letter and its name."""
    return tag("span", tag("span", "AB"[run], class_=f"letter r{run}"), f" {names[run]}", class_="run")


def _caption(chart: Chart) -> Iterator[Markup]:
    """Yield the caption: metric, unit and notes."""
    if chart.metrics:
        names = [part for name in chart.metrics for part in (tag("code", name), " ")]
        yield tag("span", tag("b", "Of "), *names, class_="of")
    units = unit(chart.unit) + (f", right {unit(chart.right_unit)}" if chart.right_unit else "")
    yield tag("span", tag("b", "Unit "), units + (", on a logarithmic scale" if chart.log else ""), class_="of")
    if chart.note:
        yield tag("span", chart.note, class_="note")


def unit(words: str) -> str:
    """Return a unit in everyday words."""
    return "a pure number" if words == "1" else words


def _controls(chart: Chart, identity: str) -> list[Markup]:
    """Return the controls that select a tensor, and a step if one step is shown at a time."""
    shown = chart.frames or chart.ridges
    places = list(dict.fromkeys(frame.where for frame in shown))
    if chart.shape not in SLIDES or not places:
        return []
    options = [tag("option", option, value=place) for place, option in enumerate(places)]
    parts = [tag("label", "of ", tag("select", *options, class_="where", id=f"{identity}-where"))]
    if chart.frames:
        steps = {frame.step for frame in chart.frames if frame.where == places[0]}
        slider = tag(
            "input", type="range", class_="step", id=f"{identity}-step", min=0, max=len(steps) - 1, value=len(steps) - 1, step=1
        )
        parts.append(tag("label", tag("span", "step ", tag("output", str(max(steps)))), slider))
    return [tag("div", *parts, class_="controls")]


def _marks(marks: list[Mark], findings: int) -> Markup:
    """Return the events, folded away, each with a button that marks its step in the chart; findings by their codes."""
    lines = [
        tag(
            "li",
            tag("button", f"step {mark.step}", type="button", class_="to", data_step=mark.step),
            " ",
            _happened(mark, findings),
        )
        for mark in marks[:MAX_MARKS]
    ]
    more = [tag("li", f"and {len(marks) - MAX_MARKS} more in the picture")] if len(marks) > MAX_MARKS else []
    return tag("details", tag("summary", f"What happened: {len(marks)}"), tag("ul", *lines, *more, class_="marks"))


def _happened(mark: Mark, findings: int) -> Markup:
    if mark.finding is None or not mark.code:
        return text(mark.text)
    return tag("a", mark.code, href=f"#f-{mark.finding}") if mark.finding < findings else text(mark.code)


# The numbers of a chart as a table: every bar, and for long curves the start, end and extremes.
def table(chart: Chart) -> Markup:
    """Return the table of a chart with its formula, folded away."""
    head, rows = _rows(chart)
    shown = [tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows[:MAX_ROWS]]
    more = [tag("p", f"{plural(len(rows) - MAX_ROWS, 'more row')} left out.")] if len(rows) > MAX_ROWS else []
    asked = [tag("p", "Every value: ", tag("code", f"ckaudit metrics RUN {' '.join(chart.metrics)}"))] if chart.metrics else []
    whole = tag(
        "table",
        tag("caption", chart.title),
        tag("thead", tag("tr", *(tag("th", cell, scope="col") for cell in head))),
        tag("tbody", join(shown)),
    )
    inside = tag("div", whole, class_="scroll", tabindex=0, role="region", aria_label=f"Numbers of: {chart.title}")
    formula = (
        [tag("p", *(tag("code", line) for line in readable(chart.formula).split("\n")), class_="formula")]
        if chart.formula
        else []
    )
    return tag("details", tag("summary", "Numbers and formula" if formula else "Numbers"), *formula, inside, *more, *asked)


def _rows(chart: Chart) -> tuple[Row, list[Row]]:
    """Return the head and the rows of a chart's table."""
    if chart.shape == "bars":
        bars: list[Row] = [
            (str(label), trace.name, _written(value))
            for trace in chart.traces
            for label, value in zip(trace.x, trace.y, strict=True)
        ]
        return (chart.x, "of", f"value ({chart.unit})"), bars
    if chart.matrix is not None:
        lines = [
            (name, chart.matrix.columns, values) for name, values in zip(chart.matrix.rows, chart.matrix.values, strict=True)
        ]
        return ("row", *SUMMED), [(name, *summarized(columns, values)) for name, columns, values in lines]
    if chart.frames:
        places = dict.fromkeys(frame.where for frame in chart.frames)
        return ("of", "steps"), [
            (place, ", ".join(str(frame.step) for frame in chart.frames if frame.where == place)) for place in places
        ]
    if chart.ridges:
        ends: list[Row] = [
            (ridge.where, str(ridge.step), _written(ridge.edges[0]), _written(ridge.edges[-1]))
            for ridge in chart.ridges
            if ridge.edges
        ]
        return ("of", "step", "from", "to"), ends
    return ("of", *SUMMED), [(trace.name, *summarized([str(step) for step in trace.x], trace.y)) for trace in chart.traces]


def summarized(labels: Sequence[str], values: Sequence[Number | None]) -> Row:
    """Return the start, end and extremes of the values, each with its label, and how many are missing.

    >>> summarized(["1", "2", "3", "4"], [3.0, None, "NaN", 1.5])
    ('3 at 1', '1.5 at 4', '1.5 at 4', '3 at 1', '1', '1')
    """
    known = [(value, label) for label, value in zip(labels, values, strict=True) if value is not None]
    finite = [(float(value), label) for value, label in known if not isinstance(value, str) and math.isfinite(value)]
    ends = (known[0], known[-1]) if known else ()
    turns = (min(finite, key=lambda pair: pair[0]), max(finite, key=lambda pair: pair[0])) if finite else ()
    cells = [
        *(_value_at(*end) for end in ends),
        *[""] * (2 - len(ends)),
        *(_value_at(*turn) for turn in turns),
        *[""] * (2 - len(turns)),
    ]
    return (*cells, str(len(known) - len(finite)), str(len(values) - len(known)))


def _value_at(value: Number, label: str) -> str:
    return f"{_written(value)} at {label}"


def _written(value: Number | None) -> str:
    return "not recorded" if value is None else number(value)


# The numbers of the charts as blocks of JSON that no browser runs, one for each tab.
def blocks(panels: Panels) -> Markup:
    """Return a block for the charts of each tab; it is read when the tab is opened."""
    subjects = [visible(subject) for subject in run_names(panels.subjects)]
    drawn = {tab.id: [_drawn(chart) for chart in tab.charts] for tab in panels.tabs if tab.charts}
    texts = {name: encoded({"subjects": subjects, "charts": charts}) for name, charts in drawn.items()}
    return join([Markup(f'<script type="application/json" id="d-{name}">{text}</script>') for name, text in texts.items()])


def encoded(value: Any) -> str:
    r"""Return JSON that is safe to embed in a page.

    >>> encoded(["</script>"])
    '["\\u003c/script\\u003e"]'
    """
    return msgspec.json.encode(value).decode().translate(RISKY)


def _drawn(chart: Chart) -> dict[str, Any]:
    """Return the data that the script needs for a chart; steps shared by several curves are written once."""
    value: dict[str, Any] = _shown({key: item for key, item in msgspec.to_builtins(chart).items() if key not in IN_PAGE})
    for mark in value.get("marks", []):
        if "finding" in mark:  # its sentence is in the list of findings
            del mark["text"]
    axes: list[Any] = []
    for trace in value.get("traces", []):
        if trace["x"] not in axes:
            axes.append(trace["x"])
        trace["x"] = axes.index(trace["x"])
    return value | ({"axes": axes} if axes else {})


def _shown(value: Any) -> Any:
    """Return nested builtins in which every string is made visible."""
    match value:
        case str():
            return visible(value)
        case dict():
            return {key: _shown(item) for key, item in value.items()}
        case list() | tuple():
            return [item if type(item) is float else _shown(item) for item in value]
    return value
