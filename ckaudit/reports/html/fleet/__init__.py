"""The overview of a fleet as one HTML file: what unhealthy runs share, a map of vital checks, losses, a line per run."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from ckaudit.contract.schema.fleet import Fleet
from ckaudit.reports.fleet import by_severity
from ckaudit.reports.html.charts import encoded
from ckaudit.reports.html.findings import badge
from ckaudit.reports.html.fleet.data import MAX_RUNS, data_of, facts_shown
from ckaudit.reports.html.fleet.sections import FIRST, causes, curves, groups, heat_map, table
from ckaudit.reports.html.page import SIGNATURE, digest, own_file
from ckaudit.reports.markup import Markup, join, tag
from ckaudit.reports.svg.style import style_sheet
from ckaudit.reports.view import PLAIN, View
from ckaudit.wording import plural

AT_ONCE = "// What stands above runs before anything is drawn.\n"
NO_LINKS: Mapping[str, str] = MappingProxyType({})


def render(fleet: Fleet, view: View = PLAIN) -> str:  # noqa: ARG001  all renderers share this signature
    """Return the page, without reports next to it."""
    return page(fleet)


def page(fleet: Fleet, links: Mapping[str, str] = NO_LINKS) -> str:
    """Return the page.

    Args:
        fleet: The audit of many runs.
        links: Address of each run's report, relative to the page; for other runs the command that makes it is shown.
    """
    style = style_sheet() + own_file("report.css") + own_file("fleet/fleet.css")
    script = own_file("fleet/fleet.js").partition(AT_ONCE)
    sections = list(_sections(fleet, links))
    body = tag("body", _header(fleet), _contents(sections), tag("main", join([part for _, _, part in sections]), id="main"))
    data = Markup(
        f'<script type="application/json" id="d-fleet">{encoded(data_of(fleet, links))}</script>\n<script>{script[2]}</script>'
    )
    whole = join([_head(fleet, style, script[0], script[2]), Markup(body.removesuffix("</body>") + data + "</body>")])
    return f"{SIGNATURE}\n{whole}</html>\n"


def _head(fleet: Fleet, style: str, first: str, script: str) -> Markup:
    scripts = f"{digest(first)} {digest(script)}"
    policy = f"default-src 'none'; script-src {scripts}; style-src {digest(style)}; base-uri 'none'; form-action 'none'"
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{' '.join(fleet.subject)}: ckaudit fleet"),
        tag("style", Markup(style)),
        tag("script", Markup(first)),
    )


def _header(fleet: Fleet) -> Markup:
    severity = badge(fleet.severity) if fleet.severity else tag("span", "no finding", class_="badge clear")
    counts = f"{by_severity(fleet)}; " if by_severity(fleet) else ""
    return tag(
        "header",
        tag("a", "To the runs", href="#main", class_="skip"),
        tag("p", tag("code", " ".join(fleet.subject)), f", {plural(len(fleet.runs), 'run')}, by {fleet.tool}", class_="dim"),
        tag("h1", severity, " ", fleet.verdict),
        tag("p", f"{counts}{fleet.audited:,} audited now, {fleet.unchanged:,} unchanged since their last audit", class_="dim"),
        tag("button", "Dark", type="button", id="theme", aria_pressed="false"),
        tag("noscript", tag("p", f"The pictures, filters, sorting and all runs but the first {FIRST} need scripts.")),
    )


def _sections(fleet: Fleet, links: Mapping[str, str]) -> Iterator[tuple[str, str, Markup]]:
    """Yield the name, title and content of each part of the page."""
    for name, title, content in (
        ("shared", "What ill runs share", causes(fleet)),
        ("map", "Which vital checks fail", heat_map(fleet)),
        ("losses", "Losses over each other", curves(fleet)),
        ("groups", "Groups", groups(fleet)),
        ("runs", "Run by run", table(fleet, links, facts_shown(fleet))),
        ("notes", "How it was made", _notes(fleet)),
    ):
        if parts := list(content):
            yield name, title, tag("section", tag("h2", title, id=f"h-{name}"), *parts, id=name, aria_labelledby=f"h-{name}")


def _contents(sections: list[tuple[str, str, Markup]]) -> Markup:
    return tag(
        "nav", tag("ul", *(tag("li", tag("a", title, href=f"#{name}")) for name, title, _ in sections)), aria_label="Parts"
    )


def _notes(fleet: Fleet) -> Iterator[Markup]:
    left_out = len(fleet.runs) - MAX_RUNS
    notes = (
        [f"Only the {MAX_RUNS:,} most urgent runs are on this page; {plural(left_out, 'run')} more are not."]
        if left_out > 0
        else []
    )
    notes += [f"Every row is in the data set {fleet.dataset}, which ckaudit fleet query asks in SQL."] if fleet.dataset else []
    if notes := [*notes, *fleet.notes]:
        yield tag("ul", *(tag("li", note) for note in notes))
