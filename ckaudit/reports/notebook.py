"""A report, a comparison and metrics as a short piece of HTML for a notebook; names from files are always text."""

from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files

from ckaudit.audit.figures import shape_preserving
from ckaudit.audit.measure import MeasuredMetric, Measurement
from ckaudit.contract.schema import panels
from ckaudit.contract.schema.diff import Comparison, Pair
from ckaudit.contract.schema.fleet import Fleet
from ckaudit.contract.schema.numbers import Number, finite
from ckaudit.contract.schema.report import Chart, Finding, Report
from ckaudit.reports.fleet import HEAD, cells, listed_and_counted, rest_sentence
from ckaudit.reports.markup import Markup, join, tag
from ckaudit.reports.svg.picture import run_names
from ckaudit.reports.svg.plot import described, plot
from ckaudit.reports.svg.scale import part_of
from ckaudit.reports.terminal.screen_text import badge
from ckaudit.reports.view import View
from ckaudit.reports.words import is_limited, not_judged, number, standing
from ckaudit.wording import plural

MAX_ROWS = 8
"""Maximum findings shown; the text and JSON forms omit none."""

MAX_CAUSES, MAX_PAIRS, MAX_METRICS, MAX_RUNS = 3, 3, 60, 20

WIDE, SMALL, LINE = (760, 250), (376, 200), (120, 22)
"""Width and height, in pixels, of the loss, of a chart of a finding, and of a sparkline in a table."""

CHIPS = {"sev0": "#b42318", "sev1": "#b42318", "sev2": "#93500b", "note": "#475467", "ok": "#067647"}
"""Background colours for white words."""

WORDS = {"passed": "ok", "failed": "sev1", "worse": "sev1", "better": "ok", "same": "ok", "within noise": "ok"}
"""The colour of each comparison verdict; others have that of sev2."""

COLOURS = (
    "--ink: currentColor; --dim: color-mix(in srgb, currentColor 75%, transparent); "
    "--line: color-mix(in srgb, currentColor 20%, transparent); --card: transparent; --unknown: #6b7684; "
    "--bad: #d6451f; --watch: #b06a00; "
    "--c0: #0077bb; --c1: #d55e00; --c2: #00936b; --c3: #c26f9e; --c4: #8a7bdc; --c5: #a07800;"
)
"""A notebook may be light or dark and does not say which, so text and lines use the colour of the surrounding text."""

# A notebook aligns and stripes data frame tables by rules that override plain ones.
LAYOUT = """
max-width: 60rem; line-height: 1.45;
p { margin: .4em 0; }
b.chip { color: #fff; padding: .1em .5em; border-radius: .3em; }
table { display: block; overflow-x: auto; border-collapse: collapse; margin: .6em 0; font-size: .92em; }
table tr { background: none !important; }
table tr td, table tr th { text-align: left !important; vertical-align: top; padding: .25em .9em .25em 0; white-space: normal; }
table tr td, table tr th { overflow-wrap: anywhere; min-width: 5em; max-width: 34em; }
table tr td { border-top: 1px solid var(--line); }
table tr .short { min-width: 0; white-space: nowrap; } table tr .long { min-width: 14em; }
svg { max-width: 100%; height: auto; overflow: visible; }
figure { display: inline-block; margin: .3em .6em .3em 0; max-width: 100%; }
figcaption { font-size: .85em; } .dim { color: var(--dim); font-size: .85em; }
"""

DECADES = 1e3
"""A loss that spans more than this many times its lowest value is drawn on a logarithmic scale."""


def audit(report: Report) -> str:
    """Return the verdict, loss, first causes and findings of a report, with their charts."""
    word, colour = badge(report)
    parts = [
        tag("p", _chip(word, colour), " ", tag("b", report.verdict)),
        tag("p", _subject(report), class_="dim"),
        *_pictures(report),
        _causes(report),
        _findings(report),
    ]
    if report.response:
        parts.append(tag("p", tag("b", "What to do now: "), report.response[0]))
    if (is_limited(report) or not report.findings) and report.to_judge_more:
        parts.append(tag("p", f"To judge more: {report.to_judge_more}", class_="dim"))
    return _whole(parts)


def comparison(compared: Comparison) -> str:
    """Return the verdict word, or the gate's result, the verdict, and for each pair the losses and the result."""
    word = (compared.gate.outcome if compared.gate else compared.word).replace("_", " ")
    parts = [tag("p", _chip(word.upper(), WORDS.get(word, "sev2")), " ", tag("b", compared.verdict))]
    if compared.gate:
        parts += [tag("p", reason) for reason in compared.gate.reasons if reason not in compared.verdict]
    for pair in compared.pairs[:MAX_PAIRS]:
        parts += _losses(pair)
    rows = [[pair.left, pair.right, pair.word.replace("_", " "), pair.verdict] for pair in compared.pairs]
    parts.append(table(("reference", "run", "word", "verdict"), rows if len(rows) > 1 else [], ("word",)))
    return _whole(parts)


def fleet(audited: Fleet) -> str:
    """Return the verdict, what unhealthy runs share, and the rows of runs that are unhealthy or could not be audited."""
    shown, rest = listed_and_counted(audited, View(limit=MAX_RUNS))
    word = audited.severity or "ok"
    parts = [tag("p", _chip(word.upper(), word), " ", tag("b", audited.verdict))]
    parts += [tag("p", shared.sentence) for shared in audited.common_causes[:MAX_CAUSES]]
    parts.append(table(HEAD, [cells(run) for run in shown], ("severity", "since step")))
    return _whole([*parts, *([tag("p", rest_sentence(rest), class_="dim")] if rest else [])])


def metrics(measurement: Measurement) -> str:
    """Return the last value of each metric, and its course."""
    shown = measurement.measured[:MAX_METRICS]
    head = tag(
        "p",
        tag("b", measurement.subject),
        f": {plural(len(measurement.measured), 'metric')} with a value, {len(measurement.missing)} without",
    )
    rows = [[metric.name, _last(metric), _line(metric), metric.title] for metric in shown]
    more = len(measurement.measured) - len(shown)
    rest = [tag("p", f"and {more} more: name those that you want", class_="dim")] if more else []
    return _whole(
        [head, table(("metric", "last", "over the steps", "what it is"), rows, ("metric", "last", "over the steps")), *rest]
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]], short: Sequence[str] = ()) -> Markup:
    """Return rows as an HTML table, or nothing if there are none; cells of the columns in `short` are not wrapped."""
    if not rows:
        return Markup("")
    looks = ["short" if name in short else "long" if name in ("where", head[-1]) else "" for name in head]

    def line(kind: str, cells: Sequence[str]) -> Markup:
        return tag("tr", *(tag(kind, cell, class_=look or False) for cell, look in zip(cells, looks, strict=True)))

    return tag("table", tag("thead", line("th", head)), tag("tbody", *(line("td", row) for row in rows)))


def _whole(parts: Sequence[Markup]) -> str:
    return tag("div", tag("style", _style()), *parts, class_="ckaudit")


@cache
def _style() -> Markup:
    """Return the styles of charts, which affect nothing else in the notebook."""
    drawn = files("ckaudit.reports.svg").joinpath("picture.css").read_text(encoding="utf-8")
    return Markup(f".ckaudit {{ {COLOURS} {LAYOUT} {drawn} }}")


def _chip(word: str, colour: str) -> Markup:
    return tag("b", word, class_="chip", style=f"background: {CHIPS[colour]}")


def _subject(report: Report) -> str:
    at = f" at step {report.step:,}" if report.step is not None else ""
    return ", ".join(part for part in (f"{report.subject}{at}", not_judged(report)) if part)


def _causes(report: Report) -> Markup:
    rows = [
        [f"{cause.title.rstrip('.')} ({standing(cause)})", cause.knob, cause.inspect] for cause in report.diagnoses[:MAX_CAUSES]
    ]
    return table(("likely cause", "first knob", "where to inspect"), rows)


def _findings(report: Report) -> Markup:
    rows = [
        [_chip(finding.severity, finding.severity), finding.code, finding.where or "", _steps(finding), finding.message]
        for finding in report.findings[:MAX_ROWS]
    ]
    more = len(report.findings) - MAX_ROWS
    rest = [tag("p", f"and {more} more", class_="dim")] if more > 0 else []
    return join([table(("severity", "code", "where", "steps", "what"), rows, ("severity", "code", "steps")), *rest], "")


def _steps(finding: Finding) -> str:
    if finding.first_step is None:
        return ""
    return (
        f"{finding.first_step}"
        if finding.last_step in (None, finding.first_step)
        else f"{finding.first_step}\u2013{finding.last_step}"
    )


# Charts: the loss with its findings marked, the numbers that show the most severe findings, the losses of two runs.
def _pictures(report: Report) -> Iterator[Markup]:
    for chart in report.charts:
        if all(label.isdecimal() for label in chart.labels):
            marked = [finding for place, finding in enumerate(report.findings) if chart.finding in (None, place)]
            yield _figure(_curve(chart, marked), SMALL if chart.name == "finding" else WIDE)


def _curve(chart: Chart, findings: Sequence[Finding]) -> panels.Chart:
    marks = [
        panels.Mark(step=finding.first_step, kind="finding", text=finding.message, severity=finding.severity, code=finding.code)
        for finding in findings
        if finding.first_step is not None and finding.severity != "note"
    ]
    name = "training loss" if chart.name == "loss" else chart.title
    trace = panels.Trace(name=name, x=[*map(int, chart.labels)], y=chart.values)
    log = _spans_decades(chart.values)
    return panels.Chart(id=chart.name, title=chart.title, shape="lines", unit=chart.unit, log=log, traces=[trace], marks=marks)


def _spans_decades(values: Sequence[Number | None]) -> bool:
    known = [value for value in map(finite, values) if value is not None]
    return bool(known) and min(known) > 0 and max(known) > DECADES * min(known)


def _losses(pair: Pair) -> Iterator[Markup]:
    names = run_names((pair.left, pair.right))
    for curve in pair.curves:
        sides = ((0, curve.left), (1, curve.right))
        traces = [panels.Trace(name=curve.name, x=[*curve.steps], y=values, run=run) for run, values in sides]
        parted = [panels.Mark(step=pair.parting.step, kind="parting", text="the runs part")] if pair.parting else []
        title = f"{curve.name}: {pair.left} and {pair.right}"
        log = _spans_decades([*curve.left, *curve.right])
        drawn = panels.Chart(id=curve.name, title=title, shape="lines", unit=curve.unit, log=log, traces=traces, marks=parted)
        yield _figure(drawn, WIDE, names)


def _figure(chart: panels.Chart, size: tuple[int, int], names: Sequence[str] = ()) -> Markup:
    """Return a chart under its title, or nothing if it has fewer than two finite points."""
    if sum(finite(value) is not None for trace in chart.traces for value in trace.y) < 2:
        return Markup("")
    width, height = size
    drawn = tag(
        "svg",
        plot(chart, width, height, subjects=names),
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        role="img",
        aria_label=described(chart, names),
        class_="picture",
    )
    return tag("figure", tag("figcaption", chart.title), drawn)


def _last(measured: MeasuredMetric) -> str:
    values = measured.series.values[measured.series.recorded]
    unit = "" if measured.unit == "1" else f" {measured.unit}"
    return f"{number(float(values[-1]))}{unit}" if len(values) else ""


def _line(measured: MeasuredMetric) -> Markup:
    """Return a metric as a sparkline if it has one place, else the number of its places."""
    series = measured.series
    if len(series.labels) > 1:
        return tag("span", f"{len(series.labels)} places", class_="dim")
    rows = series.recorded_rows()
    kept = shape_preserving(rows.values[:, 0], LINE[0])
    pairs = zip(rows.steps[kept].tolist(), rows.values[kept, 0].tolist(), strict=True)
    known = [(step, value) for step, value in pairs if finite(value) is not None]
    if len(known) < 2:
        return Markup("")
    (width, height), first, last = LINE, known[0][0], known[-1][0]
    low, high = min(value for _, value in known), max(value for _, value in known)
    across, up = width - 4, height - 4
    places = [(2 + part_of(step, first, last) * across, height - 2 - part_of(value, low, high) * up) for step, value in known]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    drawn = tag("polyline", points=points, class_="curve c0")
    label = f"from {number(known[0][1])} to {number(known[-1][1])}"
    return tag("svg", drawn, viewBox=f"0 0 {width} {height}", width=width, height=height, role="img", aria_label=label)
