"""Coverage on a screen: how many rules are waiting, three bars, then the lines that record what is missing."""

from collections.abc import Iterator

from ckaudit.audit.coverage.table import Coverage, Remedy, Row
from ckaudit.metrics.catalogue import RANKS, Importance
from ckaudit.reports.coverage import (
    MORE,
    headline,
    leftover,
    levels_sentence,
    line_text,
    over_sentence,
    partial_sentence,
    rows_of,
    side_sentence,
    title_of,
    whole_command,
    young_sentence,
)
from ckaudit.reports.terminal.screen_text import paint, paragraph, printable, wrap
from ckaudit.reports.view import View
from ckaudit.wording import first_names

MAX_TOLD_IN_FULL = 2  # numbers of a remedy that are shown in full, whatever reads them
WORTH_SAYING = ("cut off", "left out, because no common name", "could also be", "ckaudit validate says")
COLOURS: dict[Importance, str] = {"must": "sev1", "should": "sev2", "nice": "note"}


def render(coverage: Coverage, view: View) -> str:
    """Return how many rules are waiting, counts, then what to write or run: musts in full, names of the rest."""
    width = view.columns()
    missing = [
        _advice(coverage, view, width),
        *_remedies(coverage, view, width),
        _factless(coverage, view, width),
        _young(coverage, view, width),
        _unusable(coverage, view, width),
        _foreign(coverage, view, width),
    ]
    legend = [paint(line, "dim", view) for line in wrap(levels_sentence(coverage), width)]
    parts = [
        _head(coverage, view, width),
        [*(_bar(coverage, level, view, width) for level in RANKS), *legend],
        _notes(coverage, view, width),
        _recorded(coverage, view, width) if view.verbose else [],
        *([] if coverage.part_of else missing),
        [] if view.verbose else wrap(MORE, width),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def is_shown_in_full(row: Row, view: View) -> bool:
    """Return whether a row is always shown in full instead of just by name."""
    return view.verbose or row.level == "must"


def _most(max_names: int, view: View) -> int | None:
    """Return how many names of a list are shown; in verbose mode all of them."""
    return None if view.verbose else max_names


def _title(text: str, view: View, width: int) -> list[str]:
    return [paint(line, "bold", view) for line in wrap(printable(text, view), width)]


def _head(coverage: Coverage, view: View, width: int) -> list[str]:
    about = f"scale {coverage.scale} ({coverage.scale_reason}), stage {coverage.stage} ({coverage.stage_reason})"
    dim = [paint(line, "dim", view) for line in wrap(printable(about, view), width)]
    headline_lines = _title(headline(coverage, max_names=_most(3, view)), view, width)
    command = ["    " + printable(whole_command(coverage), view)] if coverage.part_of else []
    return [*_title(f"coverage {coverage.subject}", view, width), *dim, *headline_lines, *command]


def _bar(coverage: Coverage, level: Importance, view: View, width: int) -> str:
    """Return how much of a level was recorded, as a bar and in numbers."""
    total = len(coverage.of(level))
    done = total - len(coverage.missing(level))
    room = min(40, width - 28)
    filled = done * room // total if total else room
    full, empty = ("█", "░") if view.unicode else ("#", ".")
    drawn = paint(full * filled, "ok" if done == total else COLOURS[level], view) + empty * (room - filled)
    return f"{level:<6}  {drawn}  {done} of {total} recorded"


def _notes(coverage: Coverage, view: View, width: int) -> list[str]:
    """Return what was wrong with the files and which columns were left out; in verbose mode everything."""
    notes = [note for note in coverage.notes if view.verbose or any(word in note for word in WORTH_SAYING)]
    lines = [line for note in notes for line in paragraph(printable(note, view), width, first="note: ", indent="")]
    if any(note.startswith("left out, because no common name") for note in notes):
        hint = "hint: --map NAME=COLUMN reads one of them, as in --map val_loss=COLUMN or --map microbench_score/hellaswag=COLUMN"
        lines += paragraph(hint, width, indent="")
    return lines


def _recorded(coverage: Coverage, view: View, width: int) -> list[str]:
    """Return what is recorded, by level."""
    lines = [paint("Recorded", "bold", view)]
    for level in RANKS:
        if names := [row.name for row in coverage.of(level) if row.recorded]:
            lines += paragraph(", ".join(names), width, first=f"{level:<6}  ")
    return lines if len(lines) > 1 else []


def _advice(coverage: Coverage, view: View, width: int) -> list[str]:
    """Return the heading of the lines, and the run they are meant for."""
    if not coverage.remedies:
        return []
    lines = _title("What to record next, the most telling first", view, width)
    return lines + (paragraph(sentence, width) if (sentence := over_sentence(coverage)) else [])


def _remedies(coverage: Coverage, view: View, width: int) -> Iterator[list[str]]:
    """Yield a block for each remedy."""
    for place, remedy in enumerate(coverage.remedies, start=1):
        title = title_of(place, remedy, coverage, max_names=_most(6, view))
        yield [*_title(title, view, width), *_remedy(remedy, coverage, view, width)]


def _remedy(remedy: Remedy, coverage: Coverage, view: View, width: int) -> Iterator[str]:
    """Yield where the lines go, the lines, unwrapped so that they can be copied, and what they record."""
    yield from paragraph(printable(remedy.where, view), width)
    for line in remedy.lines:
        if line.when:
            yield from (
                f"    # {comment}" for comment in wrap(printable(line_text(line, max_names=_most(3, view)), view), width - 6)
            )
        yield "    " + printable(line.code, view)
    if remedy.besides:
        yield from paragraph(printable(remedy.besides, view), width)
    rows = rows_of(remedy, coverage)
    waited = {name for waiting in coverage.waiting for name in waiting.needs}
    named = [row for row in rows if not is_shown_in_full(row, view)] if len(rows) > MAX_TOLD_IN_FULL else []
    for row in rows:
        if row not in named:
            yield from _row(row, waited, view, width)
    for level in RANKS:
        if names := [name for row in named if row.level == level for name in _names(row, waited)]:
            yield from paragraph(", ".join(names), width, first=f"{level:<6}  ")
    for extra in remedy.extras:
        yield from paragraph(f"{', '.join(extra.names)} {extra.what}", width)


def _row(row: Row, waited: set[str], view: View, width: int) -> Iterator[str]:
    """Yield level, name and description; in verbose mode also the rules that wait for it."""
    _, *besides = _names(row, waited)
    ids = row.rows if view.verbose else ()
    name = " ".join([row.name, *ids, *([f"and {', '.join(besides)}"] if besides else [])])
    text = f"{row.name} {side_sentence(row)}" if row.recorded else f"{name}: {row.title}"
    first, *more = paragraph(printable(text, view), width, first=f"{row.level:<6}  ")
    yield first.replace(row.name, paint(row.name, COLOURS[row.level], view), 1)
    yield from more
    for what, others in [*(_sides(row) if view.verbose else []), ("needs too", row.inputs[1:])]:
        if others:
            yield from paragraph(", ".join(others), width, first=f"{what:<10}  ", indent=" " * 10)
    if sentence := partial_sentence(row):
        yield from paragraph(sentence, width, indent=" " * 10)


def _names(row: Row, waited: set[str]) -> list[str]:
    """Return the name of a row, and those names it covers that a rule is waiting for."""
    return [row.name, *(name for name in row.lacks if name in waited)]


def _sides(row: Row) -> list[tuple[str, tuple[str, ...]]]:
    readers = [("lets judge", row.waiting), ("rules", row.rules), ("causes", row.causes)]
    return [*readers, ("comes with", () if row.recorded else row.lacks), ("there is", row.beside)]


def _factless(coverage: Coverage, view: View, width: int) -> list[str]:
    """Return the checks that need something no single line above provides."""
    lines: list[str] = []
    titles = ("Judged with several of these together", "Not judged, and no line above changes that")
    for title, rest in zip(titles, leftover(coverage), strict=True):
        if rest:
            lines += _title(title, view, width) + [line for text in rest for line in paragraph(printable(text, view), width)]
    return lines


def _young(coverage: Coverage, view: View, width: int) -> list[str]:
    """Return the checks that have too few numbers so far; no line helps."""
    if not coverage.young:
        return []
    lines = _title("Not judged yet, for too few points", view, width)
    return lines + [line for young in coverage.young for line in paragraph(young_sentence(young), width)]


def _unusable(coverage: Coverage, view: View, width: int) -> list[str]:
    """Return entries that have all inputs but no value, with the reason; no line records them."""
    rows = [row for row in coverage.rows if row.unusable and not row.not_applicable]
    if not rows:
        return []
    lines = [paint(line, "bold", view) for line in wrap("Not computed, though what it is made of is recorded", width)]
    return lines + [line for row in rows for line in paragraph(f"{row.name}: {row.unusable}", width)]


def _foreign(coverage: Coverage, view: View, width: int) -> list[str]:
    """Return entries that make no sense for this run, by reason; in verbose mode with all names."""
    reasons: dict[str, list[str]] = {}
    for row in coverage.rows:
        if row.not_applicable and not row.recorded:
            reasons.setdefault(row.not_applicable, []).append(row.name)
    if not reasons:
        return []
    lines = [paint("Not asked for", "bold", view)]
    for reason, names in reasons.items():
        listed = first_names(names, _most(6, view))
        lines += paragraph(f"{reason}: {listed}", width)
    return lines
