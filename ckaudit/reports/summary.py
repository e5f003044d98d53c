"""A report for a pull request or a chat: for one run its triage, for two runs both verdicts and losses and which is better."""

import math
from collections.abc import Iterator

from ckaudit.contract.schema.numbers import finite
from ckaudit.contract.schema.panels import Chart, Panels
from ckaudit.contract.schema.report import Report
from ckaudit.reports import markdown
from ckaudit.reports.escape import code, escaped
from ckaudit.reports.svg.picture import SIGNATURE, run_names, word_of_comparison
from ckaudit.reports.terminal.charts import sparkline
from ckaudit.reports.view import PLAIN, View
from ckaudit.reports.words import number

COLUMNS = 64


def render(report: Report, panels: Panels, view: View = PLAIN) -> str:
    """Return the first page of a report as GitHub-flavoured Markdown."""
    blocks = [SIGNATURE, *_beside(panels), markdown.render(report, view)]
    return "\n\n".join(blocks)


def _beside(panels: Panels) -> Iterator[str]:
    beside = panels.beside
    if beside is None or len(panels.subjects) < 2:
        return
    first, second = run_names(panels.subjects)
    word, sentence = word_of_comparison(beside)
    yield f"**{word}**: B {code(second)} against A {code(first)}: {escaped(sentence)}"
    yield f"B: **{(beside.severity or 'no finding').upper()}** {escaped(beside.verdict)}"
    if panels.front and panels.front[0].traces:
        yield "\n".join(["```text", *losses(panels.front[0]), "```"])


def losses(chart: Chart) -> list[str]:
    """Return the losses of both runs, each as a row of block characters, on the same steps and scale."""
    name = chart.traces[0].name
    traces = [trace for trace in chart.traces if trace.name == name]
    points = [
        [(int(step), value) for step, value in zip(trace.x, map(finite, trace.y), strict=True) if value is not None]
        for trace in traces
    ]
    every = [point for curve in points for point in curve]
    if not every:
        return ["no finite value recorded"]
    first, last = min(step for step, _ in every), max(step for step, _ in every)
    low, high = min(value for _, value in every), max(value for _, value in every)
    scaled = math.log10 if chart.log else float
    rows = []
    for trace, known in zip(traces, points, strict=True):
        columns: list[float | None] = [None] * COLUMNS
        for step, value in known:
            place = (step - first) * (COLUMNS - 1) // max(1, last - first)
            columns[place] = max(scaled(value), -math.inf if columns[place] is None else float(columns[place] or 0.0))
        rows.append(f"{'AB'[trace.run]} {sparkline(columns, width=COLUMNS, ends=(scaled(low), scaled(high)))}")
    unit = "" if chart.unit == "1" else f" {chart.unit}"
    log = ", log scale" if chart.log else ""
    return [*rows, f"{name} from {number(low)} to {number(high)}{unit}{log}, steps {first:,} to {last:,}"]
