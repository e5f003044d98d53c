"""One chart in the page: its question, its controls, what it is of, and a table for whoever does not see it."""

from collections.abc import Iterator

from ckaudit.contract.panels import Chart, Mark
from ckaudit.reports.formula import readable
from ckaudit.reports.html.markup import Markup, tag
from ckaudit.reports.html.table import table

KINDS = {"lines": "Curves", "bars": "Bars", "heatmap": "Map", "ridges": "Histograms", "grids": "Sampled matrices"}
SLIDES = ("ridges", "grids")
MARKS = 40  # more are in the picture, and in the list of findings


def figure(chart: Chart) -> Markup:
    """Return a chart: the script draws into its box."""
    own = f"c-{chart.id}"
    return tag(
        "figure",
        tag("h3", chart.title, id=f"{own}-title"),
        *_controls(chart, own),
        tag("div", class_="plot", role="img", aria_label=f"{KINDS[chart.shape]}: {chart.title} The numbers follow as a table."),
        tag("figcaption", *_caption(chart)),
        *([_marks(chart.marks)] if chart.marks else []),
        table(chart),
        id=own,
        class_=chart.shape,
        data_chart=chart.id,
        tabindex=-1,
        aria_labelledby=f"{own}-title",
    )


def _caption(chart: Chart) -> Iterator[Markup]:
    """Yield what is drawn: metric, formula, unit, and what a reader must know."""
    if chart.metrics:
        names = [part for name in chart.metrics for part in (tag("code", name), " ")]
        yield tag("span", tag("b", "Of "), *names, class_="of")
    if chart.formula:
        lines = [tag("code", line) for line in readable(chart.formula).split("\n")]
        yield tag("span", tag("b", "Formula "), *lines, class_="of formula")
    units = unit(chart.unit) + (f", right {unit(chart.right_unit)}" if chart.right_unit else "")
    yield tag("span", tag("b", "Unit "), units + (", on a logarithmic scale" if chart.log else ""), class_="of")
    if chart.note:
        yield tag("span", chart.note, class_="note")


def unit(words: str) -> str:
    """Return a unit as people say it."""
    return "a pure number" if words == "1" else words


def _controls(chart: Chart, own: str) -> list[Markup]:
    """Return what chooses a tensor, and a step where there is one at a time."""
    shown = chart.frames or chart.ridges
    places = list(dict.fromkeys(each.where for each in shown))
    if chart.shape not in SLIDES or not places:
        return []
    options = [tag("option", each, value=place) for place, each in enumerate(places)]
    parts = [tag("label", "of ", tag("select", *options, class_="where", id=f"{own}-where"))]
    if chart.frames:
        steps = {each.step for each in chart.frames if each.where == places[0]}
        slider = tag(
            "input", type="range", class_="step", id=f"{own}-step", min=0, max=len(steps) - 1, value=len(steps) - 1, step=1
        )
        parts.append(tag("label", tag("span", "step ", tag("output", str(max(steps)))), slider))
    return [tag("div", *parts, class_="controls")]


def _marks(marks: list[Mark]) -> Markup:
    """Return what happened, folded away, each with a button that marks its step in the picture."""
    lines = [
        tag("li", tag("button", f"step {each.step}", type="button", class_="to", data_step=each.step), f" {each.text}")
        for each in marks[:MARKS]
    ]
    more = [tag("li", f"and {len(marks) - MARKS} more in the picture")] if len(marks) > MARKS else []
    return tag("details", tag("summary", f"What happened: {len(marks)}"), tag("ul", *lines, *more, class_="marks"))
