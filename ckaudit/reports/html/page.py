"""The whole page: head with its policy, header, tabs, data and scripts."""

import gzip
from base64 import b64encode
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from ckaudit.contract.schema.panels import Link, Panels, Tab
from ckaudit.contract.schema.report import Answer, Diagnosis, Evidence, Finding, Report
from ckaudit.errors import CkauditError
from ckaudit.optional import install_command
from ckaudit.reports.html.charts import blocks, figure
from ckaudit.reports.html.markup import Markup, join, tag
from ckaudit.reports.report_sections import derived_numbers
from ckaudit.reports.words import advice, interval, is_limited, not_judged, number, standing

SIGNATURE = '<!doctype html>\n<html lang="en"><!-- ckaudit report -->'  # by this a file is known as ours

QUESTION = "What is wrong?"

# A word, and a sign that is told apart without colour.
SIGNS = {"good": ("✓", "good"), "watch": ("!", "watch"), "bad": ("✕", "bad"), "unknown": ("?", "not known")}

MISSING_SHOWN = 8
ALSO_SHOWN = 40

Places = Mapping[int, Link]

# What runs in the file: the charting library, the few scripts of our own, and the policy that allows these and nothing else.
OWN = ("draw.js", "shapes.js", "tabs.js")

LIBRARY = Path("package_data", "plotly.min.js")

EMPTY = ""  # the library makes one empty style sheet and fills it by the object model


class Library(NamedTuple):
    """The charting library, as a report holds it.

    Attributes:
        packed: Its script as gzip in base64.
        digest: Of the script as it runs.
    """

    packed: str
    digest: str


@cache
def library() -> Library:
    """Return the charting library that its package brings, without importing it.

    Raises:
        CkauditError: Where it is not installed.
    """
    spec = find_spec("plotly")
    place = Path(spec.origin).with_name(LIBRARY.parts[0]) / LIBRARY.name if spec and spec.origin else None
    if place is None or not place.is_file():
        raise CkauditError("the pictures of a report are drawn by plotly, which is not installed", hint=install_command("report"))
    script = place.read_bytes()
    return Library(b64encode(gzip.compress(script, 4, mtime=0)).decode(), digest(script.decode()))


def own_file(name: str) -> str:
    """Return a script or a style sheet of our own."""
    return files("ckaudit.reports.html").joinpath(name).read_text(encoding="utf-8")


def digest(script: str) -> str:
    """Return how a content security policy names a script: its SHA-256 (W3C Content Security Policy 3, section 2.3.1)."""
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"


def policy(library_digest: str) -> str:
    """Return the policy of the file: its own scripts and styles, images out of itself, and no network at all."""
    scripts = " ".join([library_digest, *(digest(own_file(name)) for name in (*OWN, "start.js"))])
    styles = f"{digest(own_file('report.css'))} {digest(EMPTY)}"
    parts = ["default-src 'none'", f"script-src {scripts}", f"style-src {styles}", "img-src data:", "base-uri 'none'"]
    return "; ".join([*parts, "form-action 'none'"])


def script_bodies(packed: str) -> Markup:
    """Return all scripts, in the order in which they run; the packed library is data until the browser unpacks it."""
    runs = "\n".join(f"<script>{own_file(name)}</script>" for name in (*OWN, "start.js"))
    return Markup(f'<script type="application/gzip" id="library">{packed}</script>\n{runs}')


def render(report: Report, panels: Panels) -> str:
    """Return one HTML file of a report and its pictures.

    Raises:
        CkauditError: Where the charting library is not installed.
    """
    where = finding_links(panels)
    parts = [_panel("overview", overview(report, panels)), *(_panel(tab.id, section(tab, report, where)) for tab in panels.tabs)]
    whole = join(
        [
            _head(panels),
            tag("body", _header(report, panels), _tabs(panels), tag("main", join(parts), id="main"), _scripts(panels)),
        ]
    )
    return f"{SIGNATURE}\n{whole}</html>\n"


def _head(panels: Panels) -> Markup:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy(library().digest)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{' and '.join(panels.subjects)}: ckaudit"),
        tag("style", Markup(own_file("report.css"))),
    )


def _header(report: Report, panels: Panels) -> Markup:
    named = [tag("code", panels.subjects[0])]
    named += [Markup(" beside "), tag("code", panels.subjects[1])] if len(panels.subjects) > 1 else []
    at = f" at step {report.step}" if report.step is not None else ""
    clear = tag("span", "no finding", class_="badge clear")
    limited = tag("span", "limited", class_="badge sev2")
    severity = limited if is_limited(report) else badge(report.severity) if report.severity else clear
    return tag(
        "header",
        tag("a", "To the answers", href="#main", class_="skip"),
        tag("p", *named, f"{at}, by {report.tool}", class_="dim"),
        tag("h1", severity, " ", report.verdict),
        *(tag("p", f"{sentence[0].upper()}{sentence[1:]}") for sentence in advice(report)),
        tag("button", "Dark", type="button", id="theme", aria_pressed="false"),
        tag("noscript", tag("p", "Pictures need scripts; everything else is here.")),
    )


def _tabs(panels: Panels) -> Markup:
    """Return the tabs: the questions, and the views of what is looked at every so often."""
    first = _tab("overview", Markup(""), QUESTION, chosen=True)
    kinds = {kind: [tab for tab in panels.tabs if tab.kind == kind] for kind in ("question", "dashboard")}
    questions = [_tab(tab.id, sign(tab.word), tab.question) for tab in kinds["question"]]
    views = [_tab(tab.id, Markup(""), tab.question) for tab in kinds["dashboard"]]
    lists = [tag("div", first, *questions, role="tablist", aria_label="Questions")]
    lists += [tag("div", *views, role="tablist", aria_label="Views")] if views else []
    return tag("nav", *lists, aria_label="Tabs")


def _tab(name: str, before: Markup, words: str, *, chosen: bool = False) -> Markup:
    return tag(
        "a",
        before,
        tag("span", words),
        href=f"#t-{name}",
        id=f"tab-{name}",
        role="tab",
        aria_controls=f"t-{name}",
        aria_selected="true" if chosen else "false",
        tabindex=0 if chosen else -1,
    )


def _panel(name: str, parts: Iterator[Markup]) -> Markup:
    return tag("section", *parts, id=f"t-{name}", role="tabpanel", aria_labelledby=f"tab-{name}", tabindex=0)


def _scripts(panels: Panels) -> Markup:
    return join([tag("div", id="said", role="status", class_="hidden"), blocks(panels), script_bodies(library().packed)])


# The first tab: what is wrong, why, and what to do first.
def overview(report: Report, panels: Panels) -> Iterator[Markup]:
    """Yield the parts of the first tab."""
    where = finding_links(panels)
    yield tag("h2", QUESTION)
    if report.state:
        cells = [tag("div", tag("dt", name.replace("_", " ")), tag("dd", number(value))) for name, value in report.state.items()]
        yield tag("dl", *cells, class_="state", aria_label=f"State at step {report.step}")
    if rows := derived_numbers(report, missing=True):
        yield tag("h3", "Derived numbers")
        yield tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in rows), class_="facts")
    if report.response:
        yield tag("h3", "What to do now")
        yield tag("ol", *(tag("li", text) for text in report.response))
    if report.diagnoses:
        yield tag("h3", "Likeliest causes")
        yield from (_diagnosis(place, diagnosis, report, where) for place, diagnosis in enumerate(report.diagnoses))
    yield tag("h3", f"Findings: {len(report.findings)}" if report.findings else "No findings")
    if report.findings:
        yield tag(
            "ul", *(finding_item(finding, where.get(place)) for place, finding in enumerate(report.findings)), class_="findings"
        )
    yield from _quiet(report, panels)


def _diagnosis(place: int, diagnosis: Diagnosis, report: Report, where: Places) -> Markup:
    """Return one cause: the first one open, the others folded."""
    facts = (
        ("Seen", diagnosis.symptom),
        ("Change first", diagnosis.knob),
        ("Look at", diagnosis.inspect),
        ("Runbook", diagnosis.runbook),
    )
    explained = [
        finding_item(finding, where.get(index))
        for index, finding in enumerate(report.findings)
        if finding.code in diagnosis.explains
    ]
    return tag(
        "details",
        tag(
            "summary",
            badge(diagnosis.severity),
            f" {place + 1}. {diagnosis.title} ",
            tag("span", standing(diagnosis), class_="dim"),
        ),
        tag("dl", *(tag("div", tag("dt", name), tag("dd", words)) for name, words in facts if words), class_="facts"),
        *_evidence("For it", [reason for reason in diagnosis.evidence if reason.weight > 0]),
        *_evidence("Against it", [reason for reason in diagnosis.evidence if reason.weight <= 0]),
        *([tag("h4", "Explains"), tag("ul", *explained, class_="findings")] if explained else []),
        class_="cause",
        open=place == 0,
    )


def _evidence(title: str, reasons: list[Evidence]) -> Iterator[Markup]:
    if reasons:
        yield tag("h4", title)
        yield tag("ul", *(tag("li", f"{reason.sentence} ({reason.weight:+.1f})") for reason in reasons))


def _quiet(report: Report, panels: Panels) -> Iterator[Markup]:
    """Yield what does not count, and what a reader must know of how this was made."""
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
    missed = [f"{sentence}."] if (sentence := not_judged(report)) else []
    notes = [*report.notes, *panels.notes, *policy, *missed]
    if notes:
        yield tag("h3", "To know")
        yield tag("ul", *(tag("li", note) for note in notes))


# One tab: a question, its answer, the pictures, what was found, and what could not be drawn.
def section(tab: Tab, report: Report, where: Places) -> Iterator[Markup]:
    """Yield the parts of a tab."""
    yield tag("h2", tab.question)
    yield tag("p", *([sign(tab.word), " "] if tab.kind == "question" else []), tab.answer, class_="answer")
    if tab.charts:
        yield tag("div", *(figure(chart) for chart in tab.charts), class_="charts")
    markups = [finding_item(report.findings[place], where.get(place)) for place in tab.findings if place < len(report.findings)]
    if markups:
        yield tag("h3", "Found")
        yield tag("ul", *markups, class_="findings")
    if tab.answers:
        yield tag("h3", "The questions behind it")
        yield tag("dl", *map(_answer, tab.answers), class_="facts")
    if tab.missing:
        lines = tag("ul", *(tag("li", sentence) for sentence in tab.missing))
        title = f"Not drawn, for want of data: {len(tab.missing)}"
        yield tag(
            "details",
            tag("summary", title),
            lines,
            class_="missing",
            open=(tab.kind == "question" and tab.word == "unknown") or len(tab.missing) <= MISSING_SHOWN,
        )


def sign(word: str) -> Markup:
    """Return the answer in a word with its sign."""
    mark, word_shown = SIGNS[word]
    return tag("span", tag("span", mark, aria_hidden="true"), tag("span", word_shown, class_="word"), class_=f"sign {word}")


def _answer(answer: Answer) -> Markup:
    return tag(
        "div",
        tag("dt", tag("code", answer.id), f" {answer.question}"),
        tag("dd", f"{answer.word.replace('_', ' ')}: {answer.sentence}"),
    )


# Links from a finding to where it is seen best: a tab, a chart on it, a step.
def finding_links(panels: Panels) -> Places:
    """Return for each finding, by its place in the report, the link to what shows it."""
    return {link.finding: link for link in panels.links}


def link_to(link: Link | None, words: str) -> Markup:
    """Return `words` as a link, or as they are where nothing shows the finding."""
    if link is None:
        return tag("span", words)
    target = f"#c-{link.chart}" if link.chart else f"#t-{link.tab}"
    return tag("a", words, href=target, data_step=False if link.step is None or not link.chart else link.step)


def finding_item(finding: Finding, link: Link | None) -> Markup:
    """Return a finding as an item of a list, its sentence the link to its chart."""
    parts = [badge(finding.severity), " ", tag("code", finding.code), " ", link_to(link, finding.message)]
    if steps := interval(finding):
        parts.append(tag("span", f" {steps}", class_="dim"))
    if finding.where:
        parts.append(tag("span", " in ", tag("code", finding.group or finding.where), class_="dim"))
    if finding.also:
        more = f" and {len(finding.also) - ALSO_SHOWN} more" if len(finding.also) > ALSO_SHOWN else ""
        shown = ", ".join(finding.also[:ALSO_SHOWN]) + more
        parts.append(tag("details", tag("summary", f"and {len(finding.also)} more places"), tag("p", tag("code", shown))))
    if finding.help:
        parts.append(tag("p", finding.help, class_="help"))
    return tag("li", *parts)


def badge(severity: str) -> Markup:
    """Return a severity as a word that colour only repeats."""
    return tag("span", severity, class_=f"badge {severity}")
