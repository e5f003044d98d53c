"""Coverage as Markdown: the counts, and a table of what is missing."""

from collections.abc import Iterator

from ckaudit.audit.coverage import Coverage
from ckaudit.metrics.catalogue import RANKS
from ckaudit.reports.explain.markdown import code, text
from ckaudit.reports.markdown import text as foreign_text
from ckaudit.reports.view import View


def render(found: Coverage, view: View) -> str:
    """Return counts and the table; what is only nice to have is left out of it, unless everything is asked for."""
    about = f"scale {found.scale} ({found.scale_reason}), stage {found.stage} ({found.stage_reason})"
    counts = [f"{level} {len(found.of(level)) - len(found.missing(level))} of {len(found.of(level))}" for level in RANKS]
    blocks = [f"### ckaudit coverage: {', '.join(counts)} recorded", foreign_text(f"{found.subject}: {about}")]
    levels = RANKS if view.verbose else RANKS[:2]
    if any(found.missing(level) for level in levels):
        blocks.append("\n".join(_table(found, levels)))
    return "\n\n".join(blocks) + "\n"


def _table(found: Coverage, levels: tuple[str, ...]) -> Iterator[str]:
    yield "| | not recorded | what it is | would let judge | record by |"
    yield "|---|---|---|---|---|"
    for row in found.rows:
        if row.level in levels and row in found.missing(row.level):
            judges = ", ".join(code(name) for name in (*row.rules, *row.causes)) or "-"
            yield f"| {row.level} | {code(row.name)} | {text(row.title)} | {judges} | {code(row.record)} |"
