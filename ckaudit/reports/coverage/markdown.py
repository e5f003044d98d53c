"""Coverage as Markdown: the counts, and for each line that records something a table of what it would."""

from ckaudit.audit.coverage import Coverage, Row
from ckaudit.audit.remedies import Remedy
from ckaudit.metrics.catalogue import RANKS
from ckaudit.reports.escape import visible
from ckaudit.reports.explain.markdown import code, text
from ckaudit.reports.markdown import text as foreign_text
from ckaudit.reports.view import View


def render(found: Coverage, view: View) -> str:
    """Return counts and tables; what is only nice to have is left out of it, unless everything is asked for."""
    about = f"scale {found.scale} ({found.scale_reason}), stage {found.stage} ({found.stage_reason})"
    counts = [f"{level} {len(found.of(level)) - len(found.missing(level))} of {len(found.of(level))}" for level in RANKS]
    blocks = [f"### ckaudit coverage: {', '.join(counts)} recorded", foreign_text(f"{found.subject}: {about}")]
    blocks += [
        foreign_text(f"Note: {note}")
        for note in found.notes
        if view.verbose or "ckaudit validate says" in note or "cut off" in note
    ]
    if view.verbose and (recorded := [row.name for row in found.rows if row.recorded]):
        blocks.append(f"Recorded: {', '.join(map(code, recorded))}")
    if found.over and found.remedies:
        blocks.append(
            "This run is over: the lines are for the next one. Only those that begin with ckaudit can still add to this one."
        )
    levels = RANKS if view.verbose else RANKS[:2]
    blocks += [block for remedy in found.remedies if (block := _remedy(remedy, found, levels=levels))]
    return "\n\n".join(blocks) + "\n"


def _remedy(remedy: Remedy, found: Coverage, *, levels: tuple[str, ...]) -> str:
    """Return a line that can be copied, where it goes, and the table of what it records; empty: nothing of these levels."""
    rows = {row.name: row for row in found.rows}
    chosen = [rows[name] for name in remedy.names if rows[name].level in levels]
    if not chosen:
        return ""
    table = ["| | not recorded | what it is | would let judge |", "|---|---|---|---|", *map(_line, chosen)]
    return "\n".join([f"```text\n{visible(remedy.line)}\n```", "", text(remedy.where), "", *table])


def _line(row: Row) -> str:
    judges = ", ".join(code(name) for name in (*row.rules, *row.causes)) or "no check reads it yet"
    return f"| {row.level} | {code(row.name)} | {text(row.title)} | {judges} |"
