"""The first tab: what is wrong, why, and what to do first."""

from collections.abc import Iterator

from ckaudit.contract.panels import Panels
from ckaudit.contract.report import Diagnosis, Evidence, Report
from ckaudit.reports import derived
from ckaudit.reports.html.links import Places, badge, finding, places
from ckaudit.reports.html.markup import Markup, tag
from ckaudit.reports.words import not_judged, number, standing

QUESTION = "What is wrong?"


def overview(report: Report, panels: Panels) -> Iterator[Markup]:
    """Yield the parts of the first tab."""
    where = places(panels)
    yield tag("h2", QUESTION)
    if report.state:
        yield _state(report)
    if rows := derived.sentences(report, missing=True):
        yield tag("h3", "Derived numbers")
        yield tag("dl", *(tag("div", tag("dt", name), tag("dd", told)) for name, told in rows), class_="facts")
    if report.response:
        yield tag("h3", "What to do now")
        yield tag("ol", *(tag("li", each) for each in report.response))
    if report.diagnoses:
        yield tag("h3", "Likeliest causes")
        yield from (_diagnosis(place, each, report, where) for place, each in enumerate(report.diagnoses))
    yield tag("h3", f"Findings: {len(report.findings)}" if report.findings else "No findings")
    if report.findings:
        yield tag("ul", *(finding(each, where.get(place)) for place, each in enumerate(report.findings)), class_="findings")
    yield from _quiet(report, panels)


def _state(report: Report) -> Markup:
    """Return the last value of the main series."""
    cells = [tag("div", tag("dt", name.replace("_", " ")), tag("dd", number(value))) for name, value in report.state.items()]
    return tag("dl", *cells, class_="state", aria_label=f"State at step {report.step}")


def _diagnosis(place: int, each: Diagnosis, report: Report, where: Places) -> Markup:
    """Return one cause: the first one open, the others folded."""
    facts = (("Seen", each.symptom), ("Change first", each.knob), ("Look at", each.inspect), ("Runbook", each.runbook))
    explained = [finding(found, where.get(index)) for index, found in enumerate(report.findings) if found.code in each.explains]
    return tag(
        "details",
        tag("summary", badge(each.severity), f" {place + 1}. {each.title} ", tag("span", standing(each), class_="dim")),
        tag("dl", *(tag("div", tag("dt", name), tag("dd", words)) for name, words in facts if words), class_="facts"),
        *_evidence("For it", [reason for reason in each.evidence if reason.weight > 0]),
        *_evidence("Against it", [reason for reason in each.evidence if reason.weight <= 0]),
        *([tag("h4", "Explains"), tag("ul", *explained, class_="findings")] if explained else []),
        class_="cause",
        open=place == 0,
    )


def _evidence(title: str, reasons: list[Evidence]) -> Iterator[Markup]:
    if reasons:
        yield tag("h4", title)
        yield tag("ul", *(tag("li", f"{each.sentence} ({each.weight:+.1f})") for each in reasons))


def _quiet(report: Report, panels: Panels) -> Iterator[Markup]:
    """Yield what does not count, and what a reader must know of how this was made."""
    if report.suppressed:
        lines = [
            tag("li", tag("code", each.finding.code), f" {each.finding.message} Accepted by {each.by}: {each.reason}")
            for each in report.suppressed
        ]
        yield tag("details", tag("summary", f"Accepted: {len(lines)}"), tag("ul", *lines))
    policy = (
        [f"The policy {report.policy.file} applies: {'; '.join(report.policy.changes) or 'no changes'}."] if report.policy else []
    )
    missed = [f"{sentence}."] if (sentence := not_judged(report)) else []
    notes = [*report.notes, *panels.notes, *policy, *missed]
    if notes:
        yield tag("h3", "To know")
        yield tag("ul", *(tag("li", each) for each in notes))
