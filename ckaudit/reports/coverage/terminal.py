"""Coverage on a screen: three bars, then what is missing, the most needed first, and how to record it."""

from collections.abc import Iterator

from ckaudit.audit.coverage import Coverage, Row
from ckaudit.metrics.catalogue import RANKS, Importance
from ckaudit.reports.terminal.look import paint, shown
from ckaudit.reports.terminal.paragraph import fit, paragraph
from ckaudit.reports.view import View

UNSEEN = 100  # columns where no screen says how many
NARROWEST, WIDEST = 40, 110
COLOURS: dict[Importance, str] = {"must": "sev1", "should": "sev2", "nice": "note"}


def render(found: Coverage, view: View) -> str:
    """Return counts, then what is missing; of what is only nice to have the names, unless everything is asked for."""
    width = min(WIDEST, max(NARROWEST, view.width or UNSEEN))
    parts = [_head(found, view, width), [_bar(found, level, view, width) for level in RANKS]]
    parts += [_missing(found, level, view, width) for level in RANKS]
    parts.append(_foreign(found, view, width))
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _head(found: Coverage, view: View, width: int) -> list[str]:
    about = f"scale {found.scale} ({found.scale_reason}), stage {found.stage} ({found.stage_reason})"
    title = [paint(line, "bold", view) for line in fit(shown(f"coverage {found.subject}", view), width)]
    return title + [paint(line, "dim", view) for line in fit(shown(about, view), width)]


def _bar(found: Coverage, level: Importance, view: View, width: int) -> str:
    """Return how much of a level was recorded, as a bar and in numbers."""
    total = len(found.of(level))
    done = total - len(found.missing(level))
    room = min(40, width - 28)
    filled = done * room // total if total else room
    full, empty = ("█", "░") if view.unicode else ("#", ".")
    drawn = paint(full * filled, "ok" if done == total else COLOURS[level], view) + empty * (room - filled)
    return f"{level:<6}  {drawn}  {done} of {total} recorded"


def _missing(found: Coverage, level: Importance, view: View, width: int) -> list[str]:
    rows = found.missing(level)
    if not rows:
        return []
    lines = [paint(f"Not recorded: {level}", "bold", view)]
    if level == "nice" and not view.verbose:
        return lines + paragraph(", ".join(row.name for row in rows), width)
    return lines + [line for row in rows for line in _row(row, view, width)]


def _row(row: Row, view: View, width: int) -> Iterator[str]:
    """Yield the name and what it is, then what it would let us judge, then how to record it."""
    ids = f"  {' '.join(row.rows)}" if row.rows else ""
    yield f"  {paint(row.name, COLOURS[row.level], view)}{ids}"
    yield from paragraph(shown(row.title, view), width, indent="      ")
    told = [("rules", row.rules), ("causes", row.causes), ("there is", row.beside)]
    for label, names in told:
        if names:
            yield from paragraph(", ".join(names), width, first=f"{label:<8}  ", indent="      ")
    yield from paragraph(shown(row.record, view), width, first="record by ", indent="      ")


def _foreign(found: Coverage, view: View, width: int) -> list[str]:
    """Return what makes no sense for this run, by reason."""
    reasons: dict[str, list[str]] = {}
    for row in found.rows:
        if row.not_applicable and not row.recorded:
            reasons.setdefault(row.not_applicable, []).append(row.name)
    if not reasons:
        return []
    lines = [paint("Not asked for", "bold", view)]
    return lines + [line for reason, names in reasons.items() for line in paragraph(f"{reason}: {', '.join(names)}", width)]
