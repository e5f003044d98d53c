"""Coverage on a screen: three bars, then the lines that record what is missing, the one that tells most first."""

from collections.abc import Iterator

from ckaudit.audit.coverage import Coverage, Row
from ckaudit.audit.remedies import Remedy
from ckaudit.metrics.catalogue import RANKS, Importance
from ckaudit.reports.terminal.look import paint, shown
from ckaudit.reports.terminal.paragraph import fit, paragraph
from ckaudit.reports.view import View

UNSEEN = 100  # columns where no screen says how many
NARROWEST, WIDEST = 40, 110
WORTH_SAYING = ("cut off", "left out, because no common name", "could also be", "ckaudit validate says")
COLOURS: dict[Importance, str] = {"must": "sev1", "should": "sev2", "nice": "note"}


def render(found: Coverage, view: View) -> str:
    """Return counts, then what to write or run; lines for what is only nice to have are left out, unless all is asked for."""
    width = min(WIDEST, max(NARROWEST, view.width or UNSEEN))
    rows = {row.name: row for row in found.rows}
    parts = [_head(found, view, width), [_bar(found, level, view, width) for level in RANKS], _notes(found, view, width)]
    if view.verbose:
        parts.append(_recorded(found, view, width))
    parts.append(_advice(found, view, width))
    shown_ones = [each for each in found.remedies if view.verbose or rows[each.names[0]].level != "nice"]
    parts += [_remedy(each, rows, view, width) for each in shown_ones]
    told = {name for each in shown_ones for name in each.names}
    parts.append(_left(found, told, view, width))
    parts.append(_one_sided(found, view, width))
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


def _notes(found: Coverage, view: View, width: int) -> list[str]:
    """Return what was wrong with the files and which columns were left out; everything, where everything is asked for."""
    told = [note for note in found.notes if view.verbose or any(word in note for word in WORTH_SAYING)]
    lines = [line for note in told for line in paragraph(shown(note, view), width, first="note: ", indent="")]
    if any(note.startswith("left out, because no common name") for note in told):
        lines += paragraph("hint: --map NAME=COLUMN reads one of them, as in --map val_loss=COLUMN", width, indent="")
    return lines


def _recorded(found: Coverage, view: View, width: int) -> list[str]:
    """Return what is there, by level."""
    lines = [paint("Recorded", "bold", view)]
    for level in RANKS:
        if names := [row.name for row in found.of(level) if row.recorded]:
            lines += paragraph(", ".join(names), width, first=f"{level:<6}  ")
    return lines if len(lines) > 1 else []


def _advice(found: Coverage, view: View, width: int) -> list[str]:
    """Return the heading of what is missing, and for which run it is meant."""
    if not found.remedies:
        return []
    lines = [paint(line, "bold", view) for line in fit("Not recorded, by the line that records it", width)]
    if found.over:
        lines += paragraph(
            "This run is over: the lines are for the next one. Only those that begin with ckaudit can still add to this one.",
            width,
        )
    return lines


def _remedy(remedy: Remedy, rows: dict[str, Row], view: View, width: int) -> list[str]:
    """Return the line, unbroken so that it can be copied, where it goes, and what it records."""
    lines = ["    " + shown(remedy.line, view), *paragraph(shown(remedy.where, view), width)]
    if not remedy.readers:
        lines += paragraph("no rule or cause reads these yet", width)
    found = [rows[name] for name in remedy.names]
    nice = [row for row in found if row.level == "nice" and not view.verbose]
    lines += [line for row in found if row not in nice for line in _row(row, view, width, alone=not remedy.readers)]
    if nice:
        lines += paragraph(", ".join(row.name for row in nice), width, first="nice    ")
    return lines


def _row(row: Row, view: View, width: int, *, alone: bool) -> Iterator[str]:
    """Yield level and name, what it is, and who waits for it; not that nobody does where that was said of all."""
    ids = f"  {' '.join(row.rows)}" if row.rows else ""
    yield f"  {row.level:<6}  {paint(row.name, COLOURS[row.level], view)}{ids}"
    yield from paragraph(shown(row.title, view), width, indent=" " * 10)
    told = [("rules", row.rules), ("causes", row.causes), ("lacks too", row.lacks), ("there is", row.beside)]
    for label, names in told:
        if names:
            yield from paragraph(", ".join(names), width, first=f"{label:<9}  ", indent=" " * 10)
    if row.partial:
        yield from paragraph("what is there was made of other records, and rests on too little to count", width, indent=" " * 10)
    if not (row.rules or row.causes or alone):
        yield from paragraph("no rule or cause reads it yet", width, indent=" " * 10)


def _left(found: Coverage, told: set[str], view: View, width: int) -> list[str]:
    """Return the names of what has no line above."""
    names = [name for each in found.remedies for name in each.names if name not in told]
    if not names:
        return []
    return [paint("Not recorded, nice to have (-v says how)", "bold", view), *paragraph(", ".join(names), width)]


def _one_sided(found: Coverage, view: View, width: int) -> list[str]:
    """Return what is recorded while another side of it, which a check reads, is not."""
    rows = [row for row in found.rows if row.recorded and (row.rules or row.causes)]
    if not rows:
        return []
    lines = [paint("Recorded, but not from every side", "bold", view)]
    for row in rows:
        waiting = ", ".join((*row.rules, *row.causes))
        lines += paragraph(f"{row.name} is there, {', '.join(row.lacks)} not: {waiting} would read more", width)
    return lines


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
