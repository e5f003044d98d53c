"""One self-contained HTML file: verdict, charts by question, and what could not be judged."""

from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ckaudit.contract.schema.panels import Panels
from ckaudit.contract.schema.report import Report
from ckaudit.panels.downsample import MAX_LETTERS, shorten_document, thinned, without_charts
from ckaudit.reports.html.charts import blocks, figure
from ckaudit.reports.html.page import SIGNATURE, render
from ckaudit.wording import plural

__all__ = ["SIGNATURE", "fitted", "render"]

MAX_BYTES = 4_500_000

MAX_DATA_BYTES = 3_000_000

MAX_HALVINGS = 4

MAX_FINDINGS = 200

MIN_FINDINGS = 10


class FittedPage(NamedTuple):
    """A page, and sentences on what had to be left out of it."""

    page: str
    notes: list[str]


class _Content(msgspec.Struct, frozen=True):
    """The content of a page, and how far it has been reduced."""

    report: Report
    panels: Panels
    is_brief: bool = False
    halvings: int = 0
    left_out: tuple[str, ...] = ()
    findings: int = 0


# Keeps the file below a size limit: names are cut first, then charts get coarser, and finally some are left out.
def page_within_limit(report: Report, panels: Panels, *, whole: int = MAX_BYTES, data: int = MAX_DATA_BYTES) -> FittedPage:
    """Return the page of a report.

    Args:
        report: The triage report.
        panels: The charts.
        whole: Maximum bytes of the page.
        data: Maximum bytes of the numbers in the charts.
    """
    content = _Content(report, panels)
    while True:
        notes = list(_notes_on_cuts(content, len(report.findings)))
        coarse = len(blocks(content.panels).encode()) - data
        # A page is longer than the findings in it, so this much is known without writing it.
        page = "" if coarse > 0 or len(msgspec.json.encode(content.report)) > whole else _page(content, notes)
        if page and len(page.encode()) <= whole:
            return FittedPage(page, notes)
        smaller = _smaller(content, max(coarse, len(page.encode()) - whole), coarse=coarse > 0)
        if smaller is None:
            return FittedPage(page or _page(content, notes), notes)
        content = smaller


def _page(content: _Content, notes: list[str]) -> str:
    return render(replace(content.report, notes=[*content.report.notes, *notes]), content.panels)


def _smaller(content: _Content, excess: int, *, coarse: bool) -> _Content | None:
    """Return the content after the next, least harmful reduction by about `excess` bytes; None: nothing is left to reduce."""
    report, panels = content.report, content.panels
    count = max(len(report.findings), len(report.suppressed))
    if not content.is_brief:
        return replace(content, report=shorten_document(report), panels=shorten_document(panels), is_brief=True)
    if coarse and content.halvings < MAX_HALVINGS:
        return replace(content, panels=thinned(panels), halvings=content.halvings + 1)
    if count > MAX_FINDINGS:
        return _with_findings(content, MAX_FINDINGS)
    if largest := _largest(panels, excess):
        return replace(content, panels=without_charts(panels, largest), left_out=(*content.left_out, *largest))
    return _with_findings(content, count // 2) if count > MIN_FINDINGS else None


def _with_findings(content: _Content, max_findings: int) -> _Content:
    report = replace(
        content.report, findings=content.report.findings[:max_findings], suppressed=content.report.suppressed[:max_findings]
    )
    return replace(content, report=report, findings=max_findings)


def _largest(panels: Panels, excess: int) -> list[str]:
    """Return the largest charts that, with their tables and numbers, together take `excess` bytes; at least one."""
    sizes = {chart.id: len(figure(chart)) + len(msgspec.json.encode(chart)) for tab in panels.tabs for chart in tab.charts}
    ranked = sorted(sizes, key=lambda name: -sizes[name])
    before = accumulate((sizes[name] for name in ranked), initial=0)
    return [name for name, taken in zip(ranked, before, strict=False) if taken < max(1, excess)]


def _notes_on_cuts(content: _Content, findings: int) -> Iterator[str]:
    if content.is_brief:
        yield f"to keep the file small, names of more than {MAX_LETTERS} letters are cut in their middle"
    if content.halvings:
        part = {1: "half", 2: "quarter", 3: "eighth"}.get(content.halvings, "sixteenth")
        yield f"to keep the file small, curves and maps have a {part} of their points and steps"
    if content.left_out:
        are = "is" if len(content.left_out) == 1 else "are"
        yield f"to keep the file small, {plural(len(content.left_out), 'picture')} {are} left out; the tabs say which"
    if content.findings and content.findings < findings:
        yield f"to keep the file small, the {content.findings} gravest of {findings} findings are told; ckaudit triage tells all"
