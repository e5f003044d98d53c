"""All renderers: a module for each document or format, loaded only when needed."""

from importlib import import_module

from ckaudit.remote.addresses import with_addresses
from ckaudit.reports.view import PLAIN, View

FEW_FORMATS = ("terminal", "json", "markdown")
TOLD_FORMATS = (*FEW_FORMATS, "brief")
FORMATS = ("terminal", "json", "sarif", "junit", "github", "markdown", "brief")

RENDERERS: dict[str, dict[str, str]] = {
    "Report": {format_: f"{format_}:render" for format_ in FORMATS} | {"brief": "brief.report:render"},
    "Comparison": {
        "terminal": "diff.terminal:render",
        "json": "json:render",
        "markdown": "diff.markdown:render",
        "brief": "brief.comparison:render",
    },
    "Autopsy": {"terminal": "autopsy:terminal", "json": "json:render", "markdown": "autopsy:markdown"},
    "Coverage": {
        "terminal": "terminal.coverage:render",
        "json": "coverage:as_json",
        "markdown": "coverage:markdown",
        "brief": "brief.coverage:render",
    },
    "Drop": {"terminal": "benchmark_drop:terminal", "json": "json:render", "markdown": "benchmark_drop:markdown"},
    "Fleet": {
        "terminal": "terminal.fleet:render",
        "json": "json:render",
        "markdown": "fleet:markdown",
        "html": "html.fleet:render",
    },
    "Score": {"terminal": "lab.terminal:render", "json": "json:render", "markdown": "lab.markdown:render"},
    "PairScore": {"terminal": "lab.wild:pairs_on_screen", "json": "json:render", "markdown": "lab.wild:pairs_on_paper"},
    "WildScore": {"terminal": "lab.wild:on_screen", "json": "json:render", "markdown": "lab.wild:on_paper"},
    "DrillReport": {"terminal": "lab.drill:on_screen", "json": "json:render", "markdown": "lab.drill:on_paper"},
    "Pages": {
        "terminal": "terminal.explain:pages",
        "json": "explain:json_pages",
        "markdown": "explain:markdown_pages",
        "brief": "brief.pages:render",
    },
    "Groups": {
        "terminal": "terminal.explain:groups",
        "json": "explain:json_groups",
        "markdown": "explain:markdown_groups",
        "brief": "brief.pages:groups",
    },
}


def render(document: object, format: str, view: View = PLAIN, *, kind: str = "") -> str:  # noqa: A002  the option's name
    """Return a rendered document, ending in a newline unless it is empty.

    Args:
        document: The document to render.
        format: One of the formats that `RENDERERS` has for it.
        view: Width, colours and level of detail.
        kind: Its key in `RENDERERS`; without one, the name of its class.
    """
    document = with_addresses(document)
    renderers = RENDERERS[kind or type(document).__name__]
    if format not in renderers:  # in formats that only show findings, a comparison is rendered as a report
        document, renderers = import_module(f"{__name__}.diff.report").report_of(document), RENDERERS["Report"]
    module, _, function = renderers[format].partition(":")
    text: str = getattr(import_module(f"{__name__}.{module}"), function)(document, view)
    return text
