"""Pages of explain and the list of all names, in Markdown and JSON; in Markdown, formulas stay TeX, which GitHub renders."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ckaudit.explain.page import NameGroup, Page, Section
from ckaudit.reports.escape import backticks, prose
from ckaudit.reports.formula import readable
from ckaudit.reports.json import dumps
from ckaudit.reports.terminal.explain import sketch
from ckaudit.reports.view import PLAIN, View

PATHS = {"reads"}  # facts that list names


def markdown_pages(pages: Sequence[Page], view: View = PLAIN, *, level: int = 2) -> str:
    """Return pages one below the other, each under a heading of `level`."""
    return "\n".join("\n\n".join(block for block in _blocks(page, view, level) if block) + "\n" for page in pages)


def markdown_groups(groups: Sequence[NameGroup], view: View = PLAIN, *, level: int = 2) -> str:  # noqa: ARG001  Markdown has no width
    """Return a table of names for each group."""
    blocks = []
    for group in groups:
        rows = [f"| {backticks(line.name)} | {prose(' '.join(line.ids))} | {prose(line.title)} |" for line in group.lines]
        blocks.append("\n".join([f"{'#' * level} {prose(group.title)}", "", "| name | row | meaning |", "|---|---|---|", *rows]))
    return "\n\n".join(blocks) + "\n"


def _blocks(page: Page, view: View, level: int) -> Iterator[str]:
    yield f"{'#' * level} {prose(page.name)}"
    ids = f"**{', '.join(page.ids)}.** " if page.ids else ""
    also = f" Also called {', '.join(backticks(word) for word in page.also_called)}." if page.also_called else ""
    yield ids + prose(page.title) + also
    yield from (f"{formula.row + ': ' if formula.row else ''}$${formula.tex}$$" for formula in page.formulas)
    if page.shapes:
        drawn = "\n".join(sketch(page.shapes, view._replace(colour=False), 84))
        yield f"```text\n{drawn}\n```"
    sections = [_section(section) for section in page.sections]
    if page.heading:
        sections.insert(0, f"*{prose(page.heading)}*")
        yield "\n".join(_facts(page))
    yield from sections
    if not page.heading:
        yield "\n".join(_facts(page))


def _section(section: Section) -> str:
    title = prose(section.title)
    if not section.items:
        return f"**{title}.** {prose(section.text)}"
    head = f"**{title}.** {prose(section.text)}" if section.text else f"**{title}**"
    return f"{head}\n\n" + "\n".join(f"- {prose(item)}" for item in section.items)


def _facts(page: Page) -> Iterator[str]:
    """Yield the table of thresholds, facts and links."""
    yield "| | |"
    yield "|---|---|"
    for threshold in page.thresholds:
        meaning = f": {prose(threshold.meaning)}" if threshold.meaning else ""
        yield f"| {backticks(threshold.name)} | {prose(threshold.default)}{meaning} |"
    for label, fact in page.table().items():
        words = ", ".join(backticks(name) for name in fact.split(", ")) if label in PATHS else prose(fact)
        yield f"| {prose(label)} | {words} |"
    for label, names in page.links.items():
        yield f"| {prose(label)} | {', '.join(backticks(name) for name in names)} |"


def json_pages(pages: Sequence[Page], view: View) -> str:  # noqa: ARG001  programs get everything
    """Return `{"pages": [...]}`."""
    return dumps({"pages": [_json_page(page) for page in pages]})


def json_groups(groups: Sequence[NameGroup], view: View) -> str:  # noqa: ARG001  programs get everything
    """Return `{"groups": [...]}`."""
    return dumps({"groups": groups})


def _json_page(page: Page) -> dict[str, Any]:
    whole: dict[str, Any] = msgspec.to_builtins(page)
    whole["formulas"] = [{"row": formula.row, "tex": formula.tex, "text": readable(formula.tex)} for formula in page.formulas]
    return whole
