"""Pages of explain on a screen: what it is, the formula, facts, how it looks when healthy and unhealthy, and what to do."""

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from ckaudit.contract.schema.numbers import Number
from ckaudit.contract.schema.report import Chart
from ckaudit.explain.docstring import SENTENCE
from ckaudit.explain.page import NameGroup, Page, Section, Shapes
from ckaudit.reports.formula import readable
from ckaudit.reports.terminal.charts import draw_curve
from ckaudit.reports.terminal.screen_text import columns, pad, paint, paragraph, printable, wrap
from ckaudit.reports.view import View
from ckaudit.reports.words import number

INLINE = re.compile(r"(?<![\w$])\$([^$\s][^$]*)\$")
GAP = 3  # columns between the two drawings


def pages(explained: Sequence[Page], view: View) -> str:
    """Return pages below each other, separated by a line."""
    width = view.columns()
    rule = "\n" + paint(("─" if view.unicode else "-") * width, "dim", view) + "\n\n"
    return rule.join("\n\n".join("\n".join(part) for part in _parts(page, view, width) if part) + "\n" for page in explained)


def groups(listed: Sequence[NameGroup], view: View) -> str:
    """Return all names, one per line, under the question of their group."""
    width = view.columns()
    blocks = []
    for group in listed:
        names = max(len(line.name) for line in group.lines)
        ids = max(len(" ".join(line.ids)) for line in group.lines)
        head = [paint(line, "bold", view) for line in wrap(printable(group.title, view), width)]
        lines = [_entry(f"  {line.name:<{names}}  {' '.join(line.ids):<{ids}}", line.title, view, width) for line in group.lines]
        blocks.append("\n".join([*head, *lines]))
    return "\n\n".join([*blocks, "ckaudit explain NAME says all of one"]) + "\n"


def _entry(head: str, title: str, view: View, width: int, *, min_width: int = 20) -> str:
    """Return name and codes, and as much of the sentence as the line holds; none of it if that is too little."""
    room = width - len(head) - 2
    if room < min_width:
        return "  " + " ".join(head.split())
    first, *more = wrap(printable(_text(title, view), view), room)
    ellipsis = "…" if view.unicode else "..."
    return f"{head.rstrip():<{len(head)}}  " + (first[: room - len(ellipsis)] + ellipsis if more else first)


def _parts(page: Page, view: View, width: int) -> Iterator[list[str]]:
    """Yield the parts of a page from top to bottom."""
    yield _head(page, view, width)
    yield [line for formula in page.formulas for line in _formula(formula.row, formula.tex, view, width)]
    if page.shapes:
        yield [f"  {line}" for line in sketch(page.shapes, view, width - 2)]
    if not page.heading:
        yield _sections(page, view, width)
    yield _thresholds(page, view, width)
    yield _table(page.table(), view, width)
    yield _table({label: ", ".join(names) for label, names in page.links.items()}, view, width)
    if page.line:
        lines = page.line.split("\n")
        heading = "The line that records it" if len(lines) == 1 else "The lines that record it"
        yield [paint(heading, "bold", view), *("    " + printable(line, view) for line in lines)]
    if page.heading:
        yield [paint(line, "sev2", view) for line in wrap(page.heading, width)]
        yield _sections(page, view, width)


def _head(page: Page, view: View, width: int) -> list[str]:
    """Return name, codes and kind, then the sentence, then synonyms."""
    words = "  ".join([*page.ids, page.kind])
    name, kind, gap = paint(page.name, "bold", view), paint(words, "dim", view), width - columns(page.name) - len(words)
    lines = [name + " " * gap + kind] if gap > 1 else [name, kind]
    lines += wrap(printable(_text(page.title, view), view), width)
    if page.also_called:
        lines += [paint(line, "dim", view) for line in wrap(f"also called {', '.join(page.also_called)}", width)]
    return lines


def _formula(row: str, tex: str, view: View, width: int) -> list[str]:
    """Return a formula, indented, preceded by its row; long ones continue with more indentation."""
    label = f"{row}  " if row else ""
    lines: list[str] = []
    for part in readable(tex, unicode=view.unicode).split("\n"):
        first, *rest = wrap(printable(part, view), width - 8 - len(label))
        lines += [" " * 4 + (label if not lines else " " * len(label)) + first]
        lines += [" " * (8 + len(label)) + line for line in rest]
    return lines


def _sections(page: Page, view: View, width: int) -> list[str]:
    return [line for section in page.sections for line in _section(section, view, width)]


def _section(section: Section, view: View, width: int) -> list[str]:
    lines = [paint(section.title, "bold", view)]
    if section.text:
        lines += paragraph(printable(_text(section.text, view), view), width)
    for item in section.items:
        lines += paragraph(printable(_text(item, view), view), width, first="- ")
    return lines


def _thresholds(page: Page, view: View, width: int) -> list[str]:
    """Return each threshold with its default, without repeating what a section says."""
    if not page.thresholds:
        return []
    shown = {sentence for section in page.sections for part in section.paragraphs for sentence in SENTENCE.split(part)}
    rows = {}
    for threshold in page.thresholds:
        more = " ".join(sentence for sentence in SENTENCE.split(threshold.meaning) if sentence not in shown)
        rows[threshold.name] = f"{threshold.default}: {more}" if more else threshold.default
    return [
        paint("Weights and limits" if page.kind == "cause" else "Thresholds", "bold", view),
        *_table(rows, view, width, indent="  "),
    ]


def _table(rows: dict[str, str], view: View, width: int, *, indent: str = "") -> list[str]:
    """Return dimmed labels in a column with their text next to them; on a narrow screen below them."""
    if not rows:
        return []
    room = max(len(label) for label in rows) + 2
    lines = []
    for label, text in rows.items():
        first, *rest = wrap(printable(_text(text, view), view), width - room - len(indent))
        lines.append(indent + paint(label, "dim", view) + pad("", room - len(label)) + first)
        lines += [indent + " " * room + line for line in rest]
    return lines


def _text(text: str, view: View) -> str:
    """Return prose in which the formulas between single dollars are made readable."""
    return INLINE.sub(lambda match: readable(match[1], unicode=view.unicode), text)


# A healthy and an unhealthy series drawn side by side on one axis.
def sketch(shapes: Shapes, view: View, width: int, *, widest: int = 40, height: int = 4) -> list[str]:
    """Return the two drawings, with their captions below, and the ends of their axis.

    Args:
        shapes: The two series and their words.
        view: What the screen can do.
        width: Total number of columns.
        widest: Maximum columns of one drawing; a series of few points gains nothing from more.
        height: Number of rows.
    """
    half = min(widest, (width - GAP) // 2)
    # One chart of both, with a gap, has a single axis.
    values: list[Number | None] = [*resampled(shapes.good_values, half), *[None] * GAP, *resampled(shapes.bad_values, half)]
    chart = Chart(name="shapes", title="", unit="1", labels=[str(index) for index in range(len(values))], values=values)
    rows = draw_curve(chart, width=len(values), height=height, unicode=view.unicode)[:height]
    lines = [paint(pad(row[:half], half), "ok", view) + " " * GAP + paint(row[half + GAP :], "sev2", view) for row in rows]
    good, bad = (wrap(printable(text, view), half) for text in (f"good: {shapes.good}", f"bad: {shapes.bad}"))
    lines += [pad(left, half) + " " * GAP + right for left, right in zip_longest(good, bad, fillvalue="")]
    both = (*shapes.good_values, *shapes.bad_values)
    subject = f" of {shapes.of}" if shapes.of else ""
    axis = wrap(f"an example{subject}, from {number(min(both))} to {number(max(both))}", width)
    return [*(line.rstrip() for line in lines), *(paint(line, "dim", view) for line in axis)]


def resampled(values: Sequence[float], count: int) -> list[float]:
    """Return `count` values by linear interpolation of the given ones, keeping both ends.

    >>> resampled([0.0, 2.0, 1.0], 5)
    [0.0, 1.0, 2.0, 1.5, 1.0]
    """
    resampled_values = []
    for place in range(count):
        exact = place * (len(values) - 1) / (count - 1)
        before = min(int(exact), len(values) - 2)
        share = exact - before
        resampled_values.append(values[before] * (1 - share) + values[before + 1] * share)
    return resampled_values
