"""What to record next in under 400 tokens: how many checks wait, which musts are missing, and the first lines to add."""

from ckaudit.audit.coverage.table import Coverage, Remedy
from ckaudit.metrics.catalogue import RANKS
from ckaudit.reports.brief.text_budget import clipped, fitted
from ckaudit.reports.coverage import headline, over_sentence, title_of, whole_command
from ckaudit.reports.escape import visible
from ckaudit.reports.terminal.coverage import WORTH_SAYING
from ckaudit.reports.view import View
from ckaudit.wording import first_names


def render(coverage: Coverage, view: View) -> str:  # noqa: ARG001  its length is fixed
    """Return the key facts of a coverage report; the last line says where to find the rest."""
    return brief(coverage, more="more: the same ckaudit coverage with -v and without --format; ckaudit explain NAME")


def brief(coverage: Coverage, *, more: str) -> str:
    """Return the same summary with another last line."""
    counts = [f"{level} {len(coverage.of(level)) - len(coverage.missing(level))} of {len(coverage.of(level))}" for level in RANKS]
    head = [
        clipped(headline(coverage), 220),
        visible(whole_command(coverage)) if coverage.part_of else "",
        clipped(f"recorded: {', '.join(counts)} (scale {coverage.scale}, stage {coverage.stage})", 120),
        _musts(coverage),
        over_sentence(coverage) if not coverage.part_of else "",
    ]
    remedies = {} if coverage.part_of else dict(enumerate(coverage.remedies, start=1))
    items = {f"number {place}": _remedy(place, remedy, coverage) for place, remedy in remedies.items()}
    notes = [clipped(f"note: {note}", 200) for note in coverage.notes if any(word in note for word in WORTH_SAYING)]
    return fitted(head, items, [*notes[:1], more])


def _musts(coverage: Coverage) -> str:
    missing = [row.name for row in coverage.missing("must")]
    return clipped(f"missing that a run like this must have: {first_names(missing, 8)}", 250) if missing else ""


def _remedy(place: int, remedy: Remedy, coverage: Coverage) -> str:
    """Return which checks a remedy enables, where it goes, and the line to copy if there is one."""
    code = "; ".join(line.code for line in remedy.lines)
    text = f"{clipped(title_of(place, remedy, coverage, max_names=3), 160)}. {clipped(remedy.where, 110)}"
    return f"{text} {clipped(code, 220)}" if code else text
