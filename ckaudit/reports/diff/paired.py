"""The sections of one pair on a screen: what is not alike, the questions, where the runs part, and what cannot be said."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from ckaudit.contract.schema.diff import Answer, Curve, Departure, Pair, Unlike, Word
from ckaudit.contract.schema.report import Finding
from ckaudit.reports import words
from ckaudit.reports.diff import sentences as say
from ckaudit.reports.diff.sentences import unit
from ckaudit.reports.diff.table import columns_of
from ckaudit.reports.terminal.pictures import finite, sparkline, starts
from ckaudit.reports.terminal.text import fit, paint, paragraph, shown
from ckaudit.reports.view import View
from ckaudit.reports.words import number

COLOURS: dict[Word, str] = {
    "same": "ok",
    "within_noise": "ok",
    "better": "ok",
    "worse": "sev1",
    "different": "sev2",
    "incomparable": "sev2",
    "not_recorded": "dim",
}

TOLD: tuple[Word, ...] = ("better", "worse", "different")  # whose sentence stands below the numbers

FEW = 8  # of a list, unless everything is asked for

MARGIN = 4  # two columns of indent, the name, and a space


def sections(pair: Pair, view: View, width: int) -> list[list[str]]:
    """Return every section that has something to say."""
    return [
        _unlike(pair, view, width),
        _questions(pair, view, width),
        pictures(pair, view, width),
        _parting(pair, view, width),
        _drifts(pair, view, width),
        _health(pair, view, width),
        _open(pair, view, width),
        told("Noise", [pair.noise.message], view, width),
        told("Of this pair", pair.notes, view, width),
    ]


def told(title: str, lines: Iterable[str], view: View, width: int) -> list[str]:
    """Return sentences under a heading, or nothing."""
    found = [line for each in lines if each for line in paragraph(shown(each, view), width, first="- ")]
    return [paint(title, "bold", view), *found] if found else []


def _kept(found: list[str], each: int, view: View) -> list[str]:
    """Return the first few lines of a list, and how many more there are."""
    if view.verbose or each <= FEW:
        return found
    return [*found, f"  ... and {each - FEW} more (-v shows all)"]


def _shortened(count: int, view: View) -> int:
    return count if view.verbose else min(count, FEW)


def _unlike(pair: Pair, view: View, width: int) -> list[str]:
    """Return what is not alike: first what leaves questions without an answer."""
    if not pair.unlike:
        return []
    ranked = sorted(pair.unlike, key=lambda each: not say.voided(each, pair))
    lines = [line for unlike in ranked[: _shortened(len(ranked), view)] for line in _difference(unlike, pair, view, width)]
    return [paint("Not alike", "bold", view), *_kept(lines, len(ranked), view)]


def _difference(unlike: Unlike, pair: Pair, view: View, width: int) -> Iterator[str]:
    """Yield one difference: with both sides, or where it leaves questions open with what it means for them."""
    open_ones = say.voids(unlike, pair, limit=None if view.verbose else say.LISTED)
    if open_ones:
        yield from (paint(line, "sev2", view) for line in paragraph(shown(say.meaning(unlike), view), width, first="! "))
        text = f"no answer to: {open_ones}"
        yield from (paint(line, "dim", view) for line in paragraph(shown(text, view), width, indent="    "))
        return
    yield from paragraph(shown(f"{unlike.name}: {say.sides(unlike, whole=view.verbose)}", view), width, first="- ")
    if view.verbose:
        yield from (paint(line, "dim", view) for line in paragraph(shown(unlike.message, view), width, indent="    "))


def _questions(pair: Pair, view: View, width: int) -> list[str]:
    """Return the table of answers, each sentence that says more below its numbers."""
    answers = say.judged(pair)
    if not answers:
        return []
    head = ["", "", "A", "B", "B - A", "", "noise", ""]
    rows = [[shown(cell, view) for cell in _row(answer)] for answer in answers]
    table = columns_of([head, *rows], width - 2, right={2, 3, 4, 5, 6})
    lines = [] if table is None else [paint(f"  {table[0]}", "dim", view)]
    for index, (answer, row) in enumerate(zip(answers, rows, strict=True)):
        colour = "dim" if answer.excused else COLOURS[answer.word]
        drawn = _stacked(row, width) if table is None else [f"  {table[index + 1]}"]
        drawn[0] = drawn[0].replace(row[0], paint(row[0], colour, view), 1)
        lines += drawn
        if answer.word in TOLD or view.verbose:
            lines += [paint(line, "dim", view) for line in paragraph(shown(answer.message, view), width, indent="    ")]
        if answer.excused:
            lines += paragraph(shown(f"does not count: {answer.excused}", view), width, indent="    ")
    return [paint("Questions", "bold", view), *lines]


def _row(answer: Answer) -> list[str]:
    band = "" if answer.band is None else words.number(answer.band, digits=3)
    return [
        say.WORDS[answer.word],
        say.spoken(answer.question),
        *say.both(answer.left, answer.right),
        say.difference(answer.left, answer.right),
        say.share(answer.left, answer.right),
        band,
        say.unit(answer.unit),
    ]


def _stacked(row: list[str], width: int) -> list[str]:
    """Return an answer on lines of its own where the screen has no room for a table."""
    word, question, left, right, apart, part, band, unit = row
    if not left:
        return paragraph(f"{word}: {question}", width)
    numbers = f"{left} | {right} {unit}".rstrip() + (f", {apart}" if apart else "") + (f" ({part})" if part else "")
    numbers += f", noise {band}" if band else ""
    return [*paragraph(f"{word}: {question}", width), *paragraph(numbers, width, indent="      ")]


def _parting(pair: Pair, view: View, width: int) -> list[str]:
    """Return the first to leave the band, and what followed in order."""
    if pair.parting is None and not pair.propagation:
        return []
    first = pair.parting
    lines = [] if first is None else _departure(first, "first: ", view, width, whole=True)
    after = [departure for departure in pair.propagation if departure != pair.parting]
    for departure in after[: _shortened(len(after), view)]:
        lines += _departure(departure, "- " if first is None else f"step {departure.step}: ", view, width, whole=view.verbose)
    return [paint("What differs most" if first is None else "Where they part", "bold", view), *_kept(lines, len(after), view)]


def _departure(departure: Departure, first: str, view: View, width: int, *, whole: bool) -> list[str]:
    """Return one departure: its sentence, or only the place and the numbers."""
    numbers = say.numbers(departure)
    text = departure.message if whole else say.place(departure) + (f": {numbers}" if numbers else "")
    return paragraph(shown(text, view), width, first=first)


def _drifts(pair: Pair, view: View, width: int) -> list[str]:
    """Return how far parts have come apart: of each measure the farthest, unless everything is asked for."""
    kept = pair.drifts if view.verbose else say.farthest(pair)
    lines = [line for each in kept for line in paragraph(shown(f"step {each.step}: {each.message}", view), width, first="- ")]
    more = len(pair.drifts) - len(kept)
    rest = [f"  ... and {more} more (-v shows all)"] if more else []
    return [paint("How far apart", "bold", view), *lines, *rest] if lines else []


def _health(pair: Pair, view: View, width: int) -> list[str]:
    """Return what only one of the two is ill with."""
    if not (pair.gained or pair.lost):
        return []
    lines = [paint("Health", "bold", view)]
    for title, findings in (("only B: ", pair.gained), ("only A: ", pair.lost)):
        for finding in findings[: _shortened(len(findings), view)]:
            lines += _finding(finding, title, view, width)
        lines = _kept(lines, len(findings), view)
    return lines


def _finding(finding: Finding, title: str, view: View, width: int) -> list[str]:
    when = words.interval(finding)
    text = f"{finding.severity} {finding.code} {finding.name}" + (f", {when}" if when else "") + f": {finding.message}"
    drawn = paragraph(shown(text, view), width, first=title)
    drawn[0] = drawn[0].replace(finding.severity, paint(finding.severity, finding.severity, view), 1)
    return drawn


def _open(pair: Pair, view: View, width: int) -> list[str]:
    """Return the questions without an answer, each with what is missing."""
    answers = say.unjudged(pair)
    if not answers:
        return []
    title = f"No answer: {len(answers)} of {words.plural(len(pair.answers), 'question')}"
    groups: dict[str, list[str]] = {}
    for answer in answers:
        groups.setdefault(f"{say.WORDS[answer.word]}: {say.missing(answer, pair)}", []).append(say.spoken(answer.question))
    lines = []
    for why, names in groups.items():
        lines += paragraph(shown(f"{', '.join(names)}: {why}", view), width, first="- ")
    return [*(paint(line, "bold", view) for line in fit(title, width)), *lines]


# Two curves on one scale, a line of bars each, with a mark where the runs part.
def pictures(pair: Pair, view: View, width: int) -> list[str]:
    """Return each curve of a pair below its name."""
    return [line for curve in pair.curves for line in _picture(curve, pair, view, width)]


def _picture(curve: Curve, pair: Pair, view: View, width: int) -> list[str]:
    known = [value for value in map(finite, [*curve.left, *curve.right]) if value is not None]
    if not known:
        return []
    ends, room = (min(known), max(known)), width - MARGIN
    rows = [
        f"  {name} {sparkline(values, width=room, unicode=view.unicode, ends=ends)}".rstrip()
        for name, values in (("A", curve.left), ("B", curve.right))
    ]
    end = f" {unit(curve.unit)}" if unit(curve.unit) else ""
    caption = f"from {number(ends[0])} to {number(ends[1])}{end}, steps {curve.steps[0]} to {curve.steps[-1]}, of the second run"
    title = [paint(line, "bold", view) for line in fit(shown(curve.name, view), width)]
    dim = [paint(line, "dim", view) for line in paragraph(shown(caption, view), width)]
    return [*title, *rows, *_mark(curve, pair, room), *dim]


def _mark(curve: Curve, pair: Pair, room: int) -> list[str]:
    """Return the line that points at the parting, or nothing where there is none or it lies beyond the curve."""
    if pair.parting is None or pair.parting.step > curve.steps[-1]:
        return []
    point = bisect_left(curve.steps, pair.parting.step)
    column = bisect_right(starts(len(curve.steps), room), point) - 1
    text = f"step {pair.parting.step}"
    if column + 2 + len(text) <= room:
        return [" " * (MARGIN + column) + f"^ {text}"]
    return [" " * (MARGIN + column - len(text) - 1) + f"{text} ^"]
