"""One tab: a question, its answer, the pictures, what was found, and what could not be drawn."""

from collections.abc import Iterator

from ckaudit.contract.interview import Answer
from ckaudit.contract.panels import Tab
from ckaudit.contract.report import Report
from ckaudit.reports.html.figure import figure
from ckaudit.reports.html.links import Places, finding
from ckaudit.reports.html.markup import Markup, tag

# A word, and a sign that is told apart without colour.
SIGNS = {"good": ("✓", "good"), "watch": ("!", "watch"), "bad": ("✕", "bad"), "unknown": ("?", "not known")}
MISSING_SHOWN = 8


def section(tab: Tab, report: Report, where: Places) -> Iterator[Markup]:
    """Yield the parts of a tab."""
    yield tag("h2", tab.question)
    yield tag("p", *([sign(tab.word), " "] if tab.kind == "question" else []), tab.answer, class_="answer")
    if tab.charts:
        yield tag("div", *(figure(chart) for chart in tab.charts), class_="charts")
    found = [finding(report.findings[place], where.get(place)) for place in tab.findings if place < len(report.findings)]
    if found:
        yield tag("h3", "Found")
        yield tag("ul", *found, class_="findings")
    if tab.answers:
        yield tag("h3", "The questions behind it")
        yield tag("dl", *map(_answer, tab.answers), class_="facts")
    if tab.missing:
        yield _missing(tab.missing, is_answer=tab.kind == "question" and tab.word == "unknown")


def sign(word: str) -> Markup:
    """Return the answer in a word with its sign."""
    mark, said = SIGNS[word]
    return tag("span", tag("span", mark, aria_hidden="true"), tag("span", said, class_="word"), class_=f"sign {word}")


def _answer(each: Answer) -> Markup:
    return tag(
        "div", tag("dt", tag("code", each.id), f" {each.question}"), tag("dd", f"{each.word.replace('_', ' ')}: {each.sentence}")
    )


def _missing(sentences: list[str], *, is_answer: bool) -> Markup:
    """Return what could not be drawn, a long list folded unless it is what the tab is about."""
    lines = tag("ul", *(tag("li", each) for each in sentences))
    title = f"Not drawn, for want of data: {len(sentences)}"
    return tag("details", tag("summary", title), lines, class_="missing", open=is_answer or len(sentences) <= MISSING_SHOWN)
