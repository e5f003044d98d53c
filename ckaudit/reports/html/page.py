"""The whole page: head with its policy, header, tabs, data and scripts."""

from collections.abc import Iterator

from ckaudit.contract.panels import Panels
from ckaudit.contract.report import Report
from ckaudit.reports.html.data import blocks
from ckaudit.reports.html.links import badge, places
from ckaudit.reports.html.markup import Markup, join, tag
from ckaudit.reports.html.overview import QUESTION, overview
from ckaudit.reports.html.scripts import bodies, library, own, policy
from ckaudit.reports.html.section import section, sign
from ckaudit.reports.words import advice, is_limited

SIGNATURE = '<!doctype html>\n<html lang="en"><!-- ckaudit report -->'  # by this a file is known as ours


def render(report: Report, panels: Panels) -> str:
    """Return one HTML file of a report and its pictures.

    Raises:
        CkauditError: Where the charting library is not installed.
    """
    whole = join([_head(panels), tag("body", _header(report, panels), _tabs(panels), _main(report, panels), _scripts(panels))])
    return f"{SIGNATURE}\n{whole}</html>\n"


def _head(panels: Panels) -> Markup:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy(library().digest)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{' and '.join(panels.subjects)}: ckaudit"),
        tag("style", Markup(own("report.css"))),
    )


def _header(report: Report, panels: Panels) -> Markup:
    named = [tag("code", panels.subjects[0])]
    named += [Markup(" beside "), tag("code", panels.subjects[1])] if len(panels.subjects) > 1 else []
    at = f" at step {report.step}" if report.step is not None else ""
    clear = tag("span", "no finding", class_="badge clear")
    limited = tag("span", "limited", class_="badge sev2")
    grave = limited if is_limited(report) else badge(report.severity) if report.severity else clear
    return tag(
        "header",
        tag("a", "To the answers", href="#main", class_="skip"),
        tag("p", *named, f"{at}, by {report.tool}", class_="dim"),
        tag("h1", grave, " ", report.verdict),
        *(tag("p", f"{each[0].upper()}{each[1:]}") for each in advice(report)),
        tag("button", "Dark", type="button", id="theme", aria_pressed="false"),
        tag("noscript", tag("p", "Pictures need scripts; everything else is here.")),
    )


def _tabs(panels: Panels) -> Markup:
    """Return the tabs: the questions, and the views of what is looked at every so often."""
    first = _tab("overview", Markup(""), QUESTION, chosen=True)
    kinds = {kind: [each for each in panels.tabs if each.kind == kind] for kind in ("question", "dashboard")}
    questions = [_tab(each.id, sign(each.word), each.question) for each in kinds["question"]]
    views = [_tab(each.id, Markup(""), each.question) for each in kinds["dashboard"]]
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


def _main(report: Report, panels: Panels) -> Markup:
    where = places(panels)
    parts = [_panel("overview", overview(report, panels)), *(_panel(tab.id, section(tab, report, where)) for tab in panels.tabs)]
    return tag("main", join(parts), id="main")


def _panel(name: str, parts: Iterator[Markup]) -> Markup:
    return tag("section", *parts, id=f"t-{name}", role="tabpanel", aria_labelledby=f"tab-{name}", tabindex=0)


def _scripts(panels: Panels) -> Markup:
    return join([tag("div", id="said", role="status", class_="hidden"), blocks(panels), bodies(library().packed)])
