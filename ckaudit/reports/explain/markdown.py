"""Pages as Markdown: formulas stay TeX, which GitHub draws."""

from collections.abc import Iterator, Sequence

from ckaudit.explain.page import Group, Page, Section
from ckaudit.reports.explain.sketch import sketch
from ckaudit.reports.view import PLAIN, View

# The catalogue's own words are no stranger's: only what Markdown would take for a column, a tag or an accent is escaped.
MARKUP = str.maketrans({"|": "\\|", "<": "&lt;", "*": "\\*"})
PATHS = {"reads"}  # facts that list names


def pages(found: Sequence[Page], view: View = PLAIN, *, level: int = 2) -> str:
    """Return pages one below the other, each under a heading of `level`."""
    return "\n".join("\n\n".join(block for block in _blocks(page, view, level) if block) + "\n" for page in found)


def groups(found: Sequence[Group], view: View = PLAIN, *, level: int = 2) -> str:  # noqa: ARG001  Markdown has no width
    """Return a table of names for each group."""
    blocks = []
    for group in found:
        rows = [f"| {code(line.name)} | {text(' '.join(line.ids))} | {text(line.title)} |" for line in group.lines]
        blocks.append("\n".join([f"{'#' * level} {text(group.title)}", "", "| name | row | meaning |", "|---|---|---|", *rows]))
    return "\n\n".join(blocks) + "\n"


def text(words: str) -> str:
    """Return a sentence of the catalogue as Markdown; code between backticks and formulas between dollars stay."""
    return words.translate(MARKUP)


def code(name: str) -> str:
    """Return a name as code."""
    return f"`{name}`"


def _blocks(page: Page, view: View, level: int) -> Iterator[str]:
    yield f"{'#' * level} {text(page.name)}"
    ids = f"**{', '.join(page.ids)}.** " if page.ids else ""
    also = f" Also called {', '.join(code(word) for word in page.also_called)}." if page.also_called else ""
    yield ids + text(page.title) + also
    yield from (f"{formula.row + ': ' if formula.row else ''}$${formula.tex}$$" for formula in page.formulas)
    if page.shapes:
        drawn = "\n".join(sketch(page.shapes, view._replace(colour=False), 84))
        yield f"```text\n{drawn}\n```"
    told = [_section(section) for section in page.sections]
    if page.heading:
        told.insert(0, f"*{text(page.heading)}*")
        yield "\n".join(_facts(page))
    yield from told
    if not page.heading:
        yield "\n".join(_facts(page))


def _section(section: Section) -> str:
    if section.items:
        return f"**{text(section.title)}**\n\n" + "\n".join(f"- {text(item)}" for item in section.items)
    return f"**{text(section.title)}.** {text(section.text)}"


def _facts(page: Page) -> Iterator[str]:
    """Yield the table of thresholds, facts and links."""
    yield "| | |"
    yield "|---|---|"
    for threshold in page.thresholds:
        meaning = f": {text(threshold.meaning)}" if threshold.meaning else ""
        yield f"| {code(threshold.name)} | {text(threshold.default)}{meaning} |"
    for label, said in page.table().items():
        words = ", ".join(code(name) for name in said.split(", ")) if label in PATHS else text(said)
        yield f"| {text(label)} | {words} |"
    for label, names in page.links.items():
        yield f"| {text(label)} | {', '.join(code(name) for name in names)} |"
