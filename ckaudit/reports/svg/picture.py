"""The first page of a report as one SVG: verdict, loss, three small charts, the first cause, what could not be judged."""

import re
from collections.abc import Iterator, Sequence
from textwrap import wrap

from ckaudit.contract.schema.panels import Beside, Panels
from ckaudit.contract.schema.report import Report
from ckaudit.reports.escape import visible
from ckaudit.reports.markup import Markup, tag
from ckaudit.reports.svg.plot import plot, shortened
from ckaudit.reports.svg.style import style_sheet, with_attributes
from ckaudit.reports.words import is_limited, limits, not_judged, standing

WIDTH, EDGE = 960, 20

LOSS_HEIGHT, SMALL_HEIGHT = 310, 210

LINE = 19  # of text, in pixels

LETTERS = 128  # of a line of text

SIGNATURE = "<!-- ckaudit report -->"  # identifies a file as ours; neither SVG nor Markdown shows it

NAMESPACE = "http://www.w3.org/2000/svg"

NONCHARACTERS = re.compile("[\ufffe\uffff]")  # the only remaining characters that XML 1.0 forbids (section 2.2)


def run_names(subjects: Sequence[str]) -> list[str]:
    """Return the names of runs on a page: the last parts of their paths, as far as they differ.

    >>> run_names(["runs/a", "runs/b"]), run_names(["x/a", "y/a"])
    (['a', 'b'], ['x/a', 'y/a'])
    """
    ends = [subject.rstrip("/").rpartition("/")[2] for subject in subjects]
    return ends if all(ends) and len({*ends}) == len(ends) else list(subjects)


def word_of_comparison(beside: Beside) -> tuple[str, str]:
    """Return one word on how the second run compares with the first, and the sentence without it."""
    word = beside.word.replace("_", " ")
    _, separator, rest = beside.message.partition(f"{word.capitalize()}: ")
    return word.upper(), rest if separator else beside.message


def render(report: Report, panels: Panels, *, light: bool = False) -> str:
    """Return the first page as one SVG document.

    Args:
        report: The triage report.
        panels: The charts.
        light: Whether it has only light colours and no style sheet, for programs that do not support variables.
    """
    names = run_names(panels.subjects)
    parts: list[Markup] = []
    bottom = float(EDGE)
    for part, height in [*_head(report, panels), *_pictures(panels, names), *_foot(report, panels)]:
        parts.append(tag("g", part, transform=f"translate(0 {bottom:g})"))
        bottom += height
    height = round(bottom + EDGE)
    paper = tag("rect", width=WIDTH, height=height, class_="paper")
    whole = tag(
        "svg",
        tag("title", f"{report.subject}: {report.verdict}"),
        *([] if light else [tag("style", Markup(style_sheet()))]),
        paper,
        *parts,
        xmlns=NAMESPACE,
        viewBox=f"0 0 {WIDTH} {height}",
        width=WIDTH,
        height=height,
        class_="picture",
    )
    return f"{SIGNATURE}\n{NONCHARACTERS.sub('?', with_attributes(whole))}\n"


# Text above and below; text too long for its lines is cut.
def _head(report: Report, panels: Panels) -> Iterator[tuple[Markup, float]]:
    names = run_names(panels.subjects)
    beside = panels.beside if len(names) > 1 else None
    word = "limited" if is_limited(report) else report.severity or "no finding"
    yield from _text_lines(f"{'A ' if beside else ''}{word}: {report.verdict}", "title", 100)
    if beside:
        yield from _text_lines(f"B {beside.severity or 'no finding'}: {beside.verdict}", "title", 100)
        comparison, sentence = word_of_comparison(beside)
        yield from _text_lines(f"{comparison}: B against A: {sentence}", "ink strong", 110)
    at = f" at step {report.step}" if report.step is not None else ""
    yield from _text_lines(f"{' and '.join(panels.subjects)}{at}, by {report.tool}", "", LETTERS)


def _text_lines(words: str, look: str, letters: int, *, lines: int = 2) -> Iterator[tuple[Markup, float]]:
    broken = wrap(visible(words), letters, max_lines=lines, placeholder=" …")
    for line in broken:
        yield tag("text", line, x=EDGE, y=14, class_=look), LINE + (2 if look == "title" else 0)


def _pictures(panels: Panels, names: Sequence[str]) -> Iterator[tuple[Markup, float]]:
    if not panels.front:
        return
    loss, *small = panels.front
    if loss.traces:
        drawn = plot(loss, WIDTH - 2 * EDGE, LOSS_HEIGHT, subjects=names)
        yield tag("g", drawn, transform=f"translate({EDGE} 8)"), LOSS_HEIGHT + 14
    else:
        yield from _text_lines(f"No loss to draw. {loss.note}", "ink", LETTERS)
    wide = (WIDTH - 2 * EDGE) // 3
    row = [
        tag(
            "g",
            tag("text", shortened(chart.title, 40), x=0, y=12, class_="ink strong"),
            tag("g", plot(chart, wide - 10, SMALL_HEIGHT, subjects=names, names=False), transform="translate(0 18)"),
            transform=f"translate({EDGE + place * wide} 4)",
        )
        for place, chart in enumerate(small)
    ]
    if row:
        yield tag("g", *row), SMALL_HEIGHT + 34


def _foot(report: Report, panels: Panels) -> Iterator[tuple[Markup, float]]:
    beside = panels.beside.cause if panels.beside else None
    for whose, first in ((" of A" if beside else "", next(iter(report.diagnoses), None)), (" of B", beside)):
        if first:
            yield from _text_lines(f"First cause{whose}: {first.title} ({standing(first)})", "ink strong", 118)
            yield from _text_lines(f"Change first: {first.knob}", "ink", LETTERS)
    open_checks = [*limits(report)[:2], *([not_judged(report)] if not_judged(report) else [])]
    for sentence in open_checks:
        yield from _text_lines(sentence, "", LETTERS, lines=1)
