"""Coverage on a screen: what to log next, three bars, then the lines that record what is missing."""

from collections.abc import Iterator

from ckaudit.audit.coverage import Coverage, Row
from ckaudit.audit.remedies import Remedy
from ckaudit.metrics.catalogue import RANKS, Importance
from ckaudit.reports.coverage.sentences import first_of, next_sentence, over_sentence, said_of
from ckaudit.reports.terminal.look import paint, shown
from ckaudit.reports.terminal.paragraph import fit, paragraph
from ckaudit.reports.view import View

UNSEEN = 100  # columns where no screen says how many
NARROWEST, WIDEST = 40, 110
WORTH_SAYING = ("cut off", "left out, because no common name", "could also be", "ckaudit validate says")
COLOURS: dict[Importance, str] = {"must": "sev1", "should": "sev2", "nice": "note"}


def render(found: Coverage, view: View) -> str:
    """Return what to log next, counts, then what to write or run: musts and what rules read in full, names of the rest."""
    width = min(WIDEST, max(NARROWEST, view.width or UNSEEN))
    rows = {row.name: row for row in found.rows}
    told: list[Remedy] = []
    named: list[Remedy] = []
    for each in found.remedies:
        (told if any(full(rows[name], view) for name in each.names) else named).append(each)
    parts = [
        _head(found, view, width),
        [_bar(found, level, view, width) for level in RANKS],
        _notes(found, view, width),
        _recorded(found, view, width) if view.verbose else [],
        _program(found, view, width),
        _advice(found, view, width),
        *(_remedy(each, rows, view, width) for each in told),
        _named(named, view, width),
        _unusable(found, view, width),
        _one_sided(found, view, width),
        _foreign(found, view, width),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def full(row: Row, view: View) -> bool:
    """Return whether a row is told in full and not by its name alone."""
    return view.verbose or row.level == "must" or bool(row.rules)


def _head(found: Coverage, view: View, width: int) -> list[str]:
    about = f"scale {found.scale} ({found.scale_reason}), stage {found.stage} ({found.stage_reason})"
    title = [paint(line, "bold", view) for line in fit(shown(f"coverage {found.subject}", view), width)]
    title += [paint(line, "dim", view) for line in fit(shown(about, view), width)]
    return title + [paint(line, "bold", view) for line in fit(shown(next_sentence(found), view), width)]


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


def _program(found: Coverage, view: View, width: int) -> list[str]:
    """Return the program that records, each line unbroken and below what it brings."""
    if not found.program:
        return []
    lines = [paint(line, "bold", view) for line in fit("Nothing of ckaudit records yet: these lines do, in this order", width)]
    for line in found.program.lines:
        if line.when:
            lines += [f"    # {each}" for each in fit(shown(said_of(line), view), width - 6)]
        lines.append("    " + line.code)
    return lines + (paragraph(found.program.besides, width) if found.program.besides else [])


def _advice(found: Coverage, view: View, width: int) -> list[str]:
    """Return the heading of what is missing, and for which run it is meant."""
    if not found.remedies:
        return []
    lines = [paint(line, "bold", view) for line in fit("Not recorded, by the line that records it", width)]
    return lines + (paragraph(sentence, width) if (sentence := over_sentence(found)) else [])


def _remedy(remedy: Remedy, rows: dict[str, Row], view: View, width: int) -> list[str]:
    """Return the line, unbroken so that it can be copied, where it goes, and what it records."""
    lines = ["    " + shown(remedy.line, view), *paragraph(shown(remedy.where, view), width)]
    found = [rows[name] for name in remedy.names]
    lines += [line for row in found if full(row, view) for line in _row(row, view, width)]
    if names := [row.name for row in found if not full(row, view)]:
        lines += paragraph(", ".join(names), width, first="also    ")
    return lines


def _row(row: Row, view: View, width: int) -> Iterator[str]:
    """Yield level and name, what it is, and who waits for it: by codes, or by all names where everything is asked for."""
    label = "  ".join([row.name, *([" ".join(row.rows)] if row.rows else [])])
    first, *more = paragraph(shown(f"{label}: {row.title}", view), width, first=f"{row.level:<6}  ")
    yield first.replace(row.name, paint(row.name, COLOURS[row.level], view), 1)
    yield from more
    codes = tuple(rule.partition(" ")[0] for rule in row.rules)
    readers = [("rules", row.rules), ("causes", row.causes)] if view.verbose else [("read by", (*codes, *row.causes))]
    sides = [("lacks too", row.lacks), ("there is", row.beside)] if view.verbose else []
    for what, names in [*readers, ("needs too", row.inputs[1:]), *sides]:
        if names:
            yield from paragraph(", ".join(names), width, first=f"{what:<9}  ", indent=" " * 10)
    if row.partial:
        yield from paragraph("what is there was made of other records, and rests on too little to count", width, indent=" " * 10)


def _named(remedies: list[Remedy], view: View, width: int) -> list[str]:
    """Return lines that record only what no rule reads and no run must have, each with the names of it."""
    if not remedies:
        return []
    lines = [
        paint(line, "bold", view)
        for line in fit("Besides, read by no rule (-v says what each is and where its line goes)", width)
    ]
    for each in remedies:
        lines += ["    " + shown(each.line, view), *paragraph(", ".join(each.names), width)]
    return lines


def _unusable(found: Coverage, view: View, width: int) -> list[str]:
    """Return what has all its inputs and no value, with the reason; no line records it."""
    rows = [row for row in found.rows if row.unusable and not row.not_applicable]
    if not rows:
        return []
    lines = [paint(line, "bold", view) for line in fit("Not computed, though what it is made of is recorded", width)]
    return lines + [line for row in rows for line in paragraph(f"{row.name}: {row.unusable}", width)]


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
    """Return what makes no sense for this run, by reason; the first names of many, unless everything is asked for."""
    reasons: dict[str, list[str]] = {}
    for row in found.rows:
        if row.not_applicable and not row.recorded:
            reasons.setdefault(row.not_applicable, []).append(row.name)
    if not reasons:
        return []
    lines = [paint("Not asked for", "bold", view)]
    for reason, names in reasons.items():
        told = first_of(names, most=len(names) if view.verbose else 6)
        lines += paragraph(f"{reason}: {told}", width)
    return lines
