"""Coverage as Markdown: the counts, and for each line that records something a table of what it would."""

from collections.abc import Iterator

from ckaudit.audit.coverage.remedies import Remedy
from ckaudit.audit.coverage.table import Coverage, Row
from ckaudit.metrics.catalogue import RANKS
from ckaudit.reports.coverage.sentences import (
    headline,
    leftover,
    levels_sentence,
    over_sentence,
    partial_sentence,
    rows_of,
    said_of,
    side_sentence,
    title_of,
    whole_command,
    young_sentence,
)
from ckaudit.reports.escape import escaped as foreign_text
from ckaudit.reports.escape import visible
from ckaudit.reports.explain.markdown import code, text
from ckaudit.reports.view import View


def render(coverage: Coverage, view: View) -> str:
    """Return what to log next, counts, tables, and what has no line."""
    about = f"scale {coverage.scale} ({coverage.scale_reason}), stage {coverage.stage} ({coverage.stage_reason})"
    counts = [f"{level} {len(coverage.of(level)) - len(coverage.missing(level))} of {len(coverage.of(level))}" for level in RANKS]
    blocks = [
        f"### ckaudit coverage: {', '.join(counts)} recorded",
        text(headline(coverage, max_names=None)),
        *(["\n".join(["```text", visible(whole_command(coverage)), "```"])] if coverage.part_of else []),
        text(levels_sentence(coverage)) + ".",
    ]
    blocks.append(foreign_text(f"{coverage.subject}: {about}"))
    blocks += [
        foreign_text(f"Note: {note}")
        for note in coverage.notes
        if view.verbose or "ckaudit validate says" in note or "cut off" in note
    ]
    if view.verbose and (recorded := [row.name for row in coverage.rows if row.recorded]):
        blocks.append(f"Recorded: {', '.join(map(code, recorded))}")
    if coverage.part_of:
        return "\n\n".join(blocks) + "\n"
    if coverage.remedies:
        blocks.append("### What to record next, the most telling first")
    if sentence := over_sentence(coverage):
        blocks.append(sentence)
    blocks += [_step(place, remedy, coverage) for place, remedy in enumerate(coverage.remedies, start=1)]
    return "\n\n".join([*blocks, *_without_a_line(coverage)]) + "\n"


def _step(place: int, remedy: Remedy, coverage: Coverage) -> str:
    """Return why this comes here, lines that can be copied, where they go, and the table of what they record."""
    waited = {name for waiting in coverage.waiting for name in waiting.needs}
    lines = [f"{line.code}  # {said_of(line, max_names=None)}" if line.when else line.code for line in remedy.lines]
    table = [
        "| | not recorded | what it is | lets judge | read by |",
        "|---|---|---|---|---|",
        *(_line(row, waited) for row in rows_of(remedy, coverage)),
    ]
    blocks = [f"#### {text(title_of(place, remedy, coverage, max_names=None))}"]
    blocks.append(text(remedy.where))
    blocks += ["\n".join(["```text", *map(visible, lines), "```"])] if lines else []
    blocks += [text(remedy.besides)] if remedy.besides else []
    blocks += ["\n".join(table)] if remedy.names else []
    extras = [f"- {', '.join(map(code, extra.names))} {text(extra.what)}" for extra in remedy.extras]
    return "\n\n".join([*blocks, *(["\n".join(extras)] if extras else [])])


def _line(row: Row, waited: set[str]) -> str:
    names = [row.name, *(name for name in row.lacks if name in waited)]
    missing = f"It {side_sentence(row)}." if row.recorded else row.title
    said = f"{missing} It {sentence}." if (sentence := partial_sentence(row)) else missing
    readers = [", ".join(map(code, each)) or "-" for each in (row.waiting, (*row.rules, *row.causes))]
    return f"| {row.level} | {', '.join(map(code, names))} | {text(said)} | {' | '.join(readers)} |"


def _without_a_line(coverage: Coverage) -> Iterator[str]:
    """Yield what is missing though no line is, and what is not asked for, each with the reason."""
    titles = ("Judged with several of these together:", "Not judged, and no line above changes that:")
    for title, rest in zip(titles, leftover(coverage), strict=True):
        if rest:
            yield "\n".join([title, "", *(f"- {text(each)}" for each in rest)])
    if coverage.young:
        said = [young_sentence(young).removeprefix(f"{young.name}: ") for young in coverage.young]
        lines = [f"- {code(each.name)}: {text(detail)}" for each, detail in zip(coverage.young, said, strict=True)]
        yield "\n".join(["Not judged yet, for too few points:", "", *lines])
    if rows := [row for row in coverage.rows if row.unusable and not row.not_applicable]:
        yield "\n".join(["Not computed, though what it is made of is recorded:", "", *(_item(row, row.unusable) for row in rows)])
    if rows := [row for row in coverage.rows if row.not_applicable and not row.recorded]:
        yield "\n".join(["Not asked for:", "", *(_item(row, row.not_applicable) for row in rows)])


def _item(row: Row, reason: str) -> str:
    return f"- {code(row.name)}: {text(reason)}"
