"""The first page: the loss and events, three small charts, the first cause, and what could not be judged; then the rest."""

from collections.abc import Iterator, Sequence

from ckaudit.contract.schema.panels import Chart, Panels
from ckaudit.contract.schema.report import Diagnosis, Evidence, Report
from ckaudit.reports.html.charts import run_sign
from ckaudit.reports.html.findings import all_findings, badge, finding_links, without_messages
from ckaudit.reports.markup import Markup, tag
from ckaudit.reports.report_sections import derived_numbers
from ckaudit.reports.svg.picture import run_names
from ckaudit.reports.svg.plot import described, plot
from ckaudit.reports.svg.style import with_attributes
from ckaudit.reports.words import advice, limits, not_judged, number, standing

QUESTION = "What is wrong?"

WIDE, NARROW, SMALL = (960, 320), (340, 290), (310, 220)
"""Width and height, in pixels, of the loss on a desktop and on a phone, and of a small chart."""

LIMITS_SHOWN = 4


def overview(report: Report, panels: Panels) -> Iterator[Markup]:
    """Yield the parts of the first tab."""
    yield tag("h2", QUESTION)
    names = run_names(panels.subjects)
    if panels.front:
        yield _loss(panels.front[0], names)
    if panels.front[1:]:
        yield tag("div", *(_small(chart, names, panels) for chart in panels.front[1:]), class_="small")
    yield tag("div", *_first_causes(report, panels), *_unjudged(report), class_="facing")
    if report.response:
        yield tag("h3", "What to do now")
        yield tag("ol", *(tag("li", text) for text in report.response))
    yield from all_findings(report, finding_links(panels), beside=len(panels.subjects) > 1)
    if report.diagnoses[1:]:
        yield tag("h3", "Other causes")
        yield from (_folded(place, diagnosis, report) for place, diagnosis in enumerate(report.diagnoses[1:], start=2))
    yield from _numbers(report, panels)
    yield from _quiet(report, panels)


def _loss(chart: Chart, names: Sequence[str]) -> Markup:
    """Return the loss, once for a desktop and once for a phone, or the reason why there is none."""
    if not chart.traces:
        return tag("p", tag("b", "No loss to draw. "), chart.note, class_="nothing")
    drawn = [_picture(chart, size, names, name) for size, name in ((WIDE, "wide"), (NARROW, "narrow"))]
    return tag("figure", tag("h3", chart.title, class_="hidden"), *drawn, class_="front")


def _small(chart: Chart, names: Sequence[str], panels: Panels) -> Markup:
    """Return a small chart whose title links to the full chart in a tab."""
    whole = next(
        (
            candidate
            for tab in panels.tabs
            for candidate in tab.charts
            if chart.metrics[0] in candidate.metrics and candidate.run != 1
        ),
        None,
    )
    title = tag("a", chart.title, href=f"#c-{whole.id}") if whole else chart.title
    return tag("figure", tag("h3", title), _picture(chart, SMALL, names, "all"), class_="front")


def _picture(chart: Chart, size: tuple[int, int], names: Sequence[str], name: str) -> Markup:
    width, height = size
    inside = plot(chart, width, height, subjects=names, names=False)
    label = described(chart, names)
    drawn = tag("svg", inside, viewBox=f"0 0 {width} {height}", role="img", aria_label=label, class_=f"picture {name}")
    return with_attributes(drawn)


# The likeliest cause is unfolded and shown with its knob; for the others the title is enough.
def _first_causes(report: Report, panels: Panels) -> Iterator[Markup]:
    """Yield the likeliest cause of the run, and that of the second run, whose evidence is in its own report."""
    names = run_names(panels.subjects)
    beside = panels.beside.cause if panels.beside else None
    if report.diagnoses:
        first = report.diagnoses[0]
        reasons = tag("details", tag("summary", "Evidence and runbook"), *_reasons(first, report))
        yield _cause(first, reasons, [" ", run_sign(0, names)] if beside else [])
    if beside:
        own = tag("p", "Findings and evidence: ", tag("code", f"ckaudit report {panels.subjects[1]}"), class_="dim")
        yield _cause(beside, own, [" ", run_sign(1, names)])


def _cause(diagnosis: Diagnosis, below: Markup, whose: Sequence[str]) -> Markup:
    return tag(
        "div",
        tag("h3", "First cause", *whose),
        tag("p", badge(diagnosis.severity), f" {diagnosis.title} ", tag("span", standing(diagnosis), class_="dim")),
        tag("dl", *_facts((("Change first", diagnosis.knob), ("Look at", diagnosis.inspect))), class_="facts"),
        below,
        class_="card",
    )


def _folded(place: int, diagnosis: Diagnosis, report: Report) -> Markup:
    facts = (("Change first", diagnosis.knob), ("Look at", diagnosis.inspect), ("Explains", ", ".join(diagnosis.explains)))
    head = tag(
        "summary", badge(diagnosis.severity), f" {place}. {diagnosis.title} ", tag("span", standing(diagnosis), class_="dim")
    )
    return tag("details", head, tag("dl", *_facts(facts), class_="facts"), *_reasons(diagnosis, report), class_="cause")


def _facts(facts: Sequence[tuple[str, str]]) -> Iterator[Markup]:
    return (tag("div", tag("dt", name), tag("dd", words)) for name, words in facts if words)


def _reasons(diagnosis: Diagnosis, report: Report) -> Iterator[Markup]:
    yield from _evidence("For it", [reason for reason in diagnosis.evidence if reason.weight > 0], report)
    yield from _evidence("Against it", [reason for reason in diagnosis.evidence if reason.weight <= 0], report)
    if diagnosis.runbook:
        yield tag("h4", "Runbook")
        yield tag("p", diagnosis.runbook)


def _evidence(title: str, reasons: list[Evidence], report: Report) -> Iterator[Markup]:
    if reasons:
        yield tag("h4", title)
        yield tag("ul", *(tag("li", f"{without_messages(reason.sentence, report)} ({reason.weight:+.1f})") for reason in reasons))


def _unjudged(report: Report) -> Iterator[Markup]:
    """Yield what could not be judged, and what would make that possible."""
    open_checks = limits(report)
    count = not_judged(report)
    lines = [
        *open_checks[:LIMITS_SHOWN],
        *([f"And {len(open_checks) - LIMITS_SHOWN} more."] if len(open_checks) > LIMITS_SHOWN else []),
    ]
    lines += [f"{count}."] if count else []
    lines += [f"{sentence[0].upper()}{sentence[1:]}" for sentence in advice(report)]
    if not lines:
        return
    more = tag("p", tag("a", "Everything that could not be judged", href="#t-unjudged"))
    yield tag("div", tag("h3", "Not judged"), tag("ul", *(tag("li", line) for line in lines)), more, class_="card")


# Numbers at the judged step, and notes on how the audit was made.
def _numbers(report: Report, panels: Panels) -> Iterator[Markup]:
    of_one_metric = [chart for tab in panels.tabs for chart in tab.charts if len(chart.metrics) == 1]
    units = {chart.metrics[0]: "" if chart.unit == "1" else chart.unit for chart in of_one_metric}
    rows = [(name.replace("_", " "), f"{number(value)} {units.get(name, '')}") for name, value in report.state.items()]
    rows += derived_numbers(report, missing=True)
    if rows:
        title = "Numbers" + (f" at step {report.step}" if report.step is not None else "")
        yield tag("details", tag("summary", title), tag("dl", *_facts(rows), class_="facts"))


def _quiet(report: Report, panels: Panels) -> Iterator[Markup]:
    """Yield the findings that do not count, and notes."""
    if report.suppressed:
        lines = [
            tag(
                "li",
                tag("code", suppressed.finding.code),
                f" {suppressed.finding.message} Accepted by {suppressed.by}: {suppressed.reason}",
            )
            for suppressed in report.suppressed
        ]
        yield tag("details", tag("summary", f"Accepted: {len(lines)}"), tag("ul", *lines))
    policy = (
        [f"The policy {report.policy.file} applies: {'; '.join(report.policy.changes) or 'no changes'}."] if report.policy else []
    )
    if notes := [*report.notes, *panels.notes, *policy]:
        yield tag("h3", "To know")
        yield tag("ul", *(tag("li", note) for note in notes))
