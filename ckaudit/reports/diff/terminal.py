"""A comparison on a screen: first the verdict, then the sections of each pair; more than two subjects share one table."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence

from ckaudit.contract.schema.diff import Answer, Comparison, Curve, Departure, Pair, Unlike, Word
from ckaudit.contract.schema.numbers import finite
from ckaudit.reports import words
from ckaudit.reports.diff import sentences as say
from ckaudit.reports.diff.sentences import (
    GATE_LEGEND,
    LEGEND,
    WORDS,
    badge,
    comparison_method,
    headline,
    labels,
    rows_of,
    unit,
    verdict,
)
from ckaudit.reports.terminal.charts import sparkline, starts
from ckaudit.reports.terminal.screen_text import columns, pad, paint, paragraph, printable, wrap
from ckaudit.reports.view import PLAIN, View
from ckaudit.reports.words import number
from ckaudit.wording import plural

GATE_COLOURS = {"passed": "ok", "failed": "sev1", "incomparable": "sev2"}
ANSWER_COLOURS: dict[Word, str] = {
    "same": "ok",
    "within_noise": "ok",
    "better": "ok",
    "worse": "sev1",
    "different": "sev2",
    "incomparable": "sev2",
    "not_recorded": "dim",
}

EXPLAINED_WORDS: tuple[Word, ...] = ("better", "worse", "different")  # questions whose sentence is shown below the numbers

MAX_LISTED = 8  # of a list, unless in verbose mode

MARGIN = 4  # two columns of indent, the name, and a space
GAP = 2


def render(comparison: Comparison, view: View = PLAIN) -> str:
    """Return the whole comparison, section by section; `verbose` omits nothing."""
    width = view.columns(widest=120)
    parts = [_head(comparison, view, width), _gate(comparison, view, width)]
    if len(comparison.pairs) == 1:
        parts += sections(comparison.pairs[0], view, width)
    else:
        parts.append(many(comparison, view, width))
        for index, pair in enumerate(comparison.pairs):
            left, right = (0, index + 1) if comparison.gate is None else (index, len(comparison.subjects) - 1)
            names = labels(comparison)
            head = f"{names[right]} against {names[left]}: {WORDS[pair.word]}: "
            lines = paragraph(printable(verdict(pair), view), width, first=head, indent="")
            lines[0] = lines[0].replace(head, paint(head, "bold", view), 1)
            parts += [lines, *sections(pair, view, width)] if view.verbose else [lines]
    parts.append(_sentences("Notes", comparison.notes, view, width))
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _head(comparison: Comparison, view: View, width: int) -> list[str]:
    """Return the badge with the verdict, then the names of the subjects, dimmed."""
    word = badge(comparison)
    colour = GATE_COLOURS[comparison.gate.outcome] if comparison.gate else ANSWER_COLOURS[comparison.word]
    first, *rest = wrap(printable(headline(comparison, *labels(comparison)[:2]), view), width - len(word) - 2)
    lines = [f"{paint(word, colour, view)}  {paint(first, 'bold', view)}"]
    lines += [" " * (len(word) + 2) + paint(line, "bold", view) for line in rest]
    about = comparison_method(comparison, plural(comparison.files, "file"))
    named = [
        line
        for label, name in zip(labels(comparison), comparison.subjects, strict=True)
        for line in paragraph(printable(name, view), width, first=f"{label} ")
    ]
    return [*lines, *(paint(line, "dim", view) for line in (*named, *paragraph(printable(about, view), width)))]


def _gate(comparison: Comparison, view: View, width: int) -> list[str]:
    """Return why the gate did not pass, and the terms by which it judged."""
    if comparison.gate is None:
        return []
    gate = comparison.gate
    lines = [line for reason in gate.reasons for line in paragraph(printable(reason, view), width, first="- ")]
    terms = f"counts: {', '.join(gate.counts)}"
    if gate.allowed:
        terms += "; may be worse: " + ", ".join(f"{name} by {words.number(100 * part)} %" for name, part in gate.allowed.items())
    if gate.expected:
        terms += f"; expected: {', '.join(gate.expected)}"
    terms += f"; policy {gate.policy}" if gate.policy else "; no policy"
    title = [paint("Why", "bold", view), *lines] if lines else []
    return [*title, *(paint(line, "dim", view) for line in paragraph(printable(terms, view), width))]


# The sections of one pair: differences in setup, the questions, where the runs part, and open questions.
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
        _sentences("Noise", [pair.noise.message], view, width),
        _sentences("Of this pair", pair.notes, view, width),
    ]


def _sentences(title: str, lines: Iterable[str], view: View, width: int) -> list[str]:
    """Return sentences under a heading, or nothing."""
    drawn = [line for sentence in lines if sentence for line in paragraph(printable(sentence, view), width, first="- ")]
    return [paint(title, "bold", view), *drawn] if drawn else []


def _kept(lines: list[str], count: int, view: View) -> list[str]:
    """Return the first few lines of a list, and how many more there are."""
    if view.verbose or count <= MAX_LISTED:
        return lines
    return [*lines, f"  ... and {count - MAX_LISTED} more (-v shows all)"]


def _shortened(count: int, view: View) -> int:
    return count if view.verbose else min(count, MAX_LISTED)


def _unlike(pair: Pair, view: View, width: int) -> list[str]:
    """Return what differs in setup; differences that leave questions without an answer come first."""
    if not pair.unlike:
        return []
    ranked = sorted(pair.unlike, key=lambda unlike: not say.questions_voided(unlike, pair))
    lines = [line for unlike in ranked[: _shortened(len(ranked), view)] for line in _difference(unlike, pair, view, width)]
    return [paint("Not alike", "bold", view), *_kept(lines, len(ranked), view)]


def _difference(unlike: Unlike, pair: Pair, view: View, width: int) -> Iterator[str]:
    """Yield one difference: with both sides, or, if it leaves questions open, with what it means for them."""
    open_ones = say.questions_voided_text(unlike, pair, limit=None if view.verbose else say.MAX_LISTED)
    if open_ones:
        yield from (paint(line, "sev2", view) for line in paragraph(printable(say.meaning(unlike), view), width, first="! "))
        text = f"no answer to: {open_ones}"
        yield from (paint(line, "dim", view) for line in paragraph(printable(text, view), width, indent="    "))
        return
    yield from paragraph(printable(f"{unlike.name}: {say.sides(unlike, whole=view.verbose)}", view), width, first="- ")
    if view.verbose:
        yield from (paint(line, "dim", view) for line in paragraph(printable(unlike.message, view), width, indent="    "))


def _questions(pair: Pair, view: View, width: int) -> list[str]:
    """Return the table of answers, with explanatory sentences below their numbers."""
    answers = say.judged(pair)
    if not answers:
        return []
    head = ["", "", "A", "B", "B - A", "", "noise", ""]
    rows = [[printable(cell, view) for cell in _row(answer)] for answer in answers]
    table = columns_of([head, *rows], width - 2, right={2, 3, 4, 5, 6})
    lines = [] if table is None else [paint(f"  {table[0]}", "dim", view)]
    for index, (answer, row) in enumerate(zip(answers, rows, strict=True)):
        colour = "dim" if answer.excused else ANSWER_COLOURS[answer.word]
        drawn = _stacked(row, width) if table is None else [f"  {table[index + 1]}"]
        drawn[0] = drawn[0].replace(row[0], paint(row[0], colour, view), 1)
        lines += drawn
        if answer.word in EXPLAINED_WORDS or view.verbose:
            lines += [paint(line, "dim", view) for line in paragraph(printable(answer.message, view), width, indent="    ")]
        if answer.excused:
            lines += paragraph(printable(f"does not count: {answer.excused}", view), width, indent="    ")
    return [paint("Questions", "bold", view), *lines]


def _row(answer: Answer) -> list[str]:
    band = "" if answer.band is None else words.number(answer.band, digits=3)
    return [
        say.WORDS[answer.word],
        say.name_in_words(answer.question),
        *say.value_cells(answer.left, answer.right),
        say.difference(answer.left, answer.right),
        say.share(answer.left, answer.right),
        band,
        say.unit(answer.unit),
    ]


def _stacked(row: list[str], width: int) -> list[str]:
    """Return an answer on separate lines, for a screen that is too narrow for a table."""
    word, question, left, right, apart, part, band, unit = row
    if not left:
        return paragraph(f"{word}: {question}", width)
    numbers = f"{left} | {right} {unit}".rstrip() + (f", {apart}" if apart else "") + (f" ({part})" if part else "")
    numbers += f", noise {band}" if band else ""
    return [*paragraph(f"{word}: {question}", width), *paragraph(numbers, width, indent="      ")]


def _parting(pair: Pair, view: View, width: int) -> list[str]:
    """Return the first number to leave the band, and those that followed, in order."""
    if pair.parting is None and not pair.propagation:
        return []
    first = pair.parting
    lines = [] if first is None else _departure(first, "first: ", view, width, whole=True)
    after = [departure for departure in pair.propagation if departure != pair.parting]
    for departure in after[: _shortened(len(after), view)]:
        lines += _departure(departure, "- " if first is None else f"step {departure.step}: ", view, width, whole=view.verbose)
    return [paint("What differs most" if first is None else "Where they part", "bold", view), *_kept(lines, len(after), view)]


def _departure(departure: Departure, first: str, view: View, width: int, *, whole: bool) -> list[str]:
    """Return one departure: its sentence, or just the place and the numbers."""
    numbers = say.numbers(departure)
    text = departure.message if whole else say.place(departure) + (f": {numbers}" if numbers else "")
    return paragraph(printable(text, view), width, first=first)


def _drifts(pair: Pair, view: View, width: int) -> list[str]:
    """Return how far parts have drifted apart: for each measure the farthest, or in verbose mode all."""
    drifts = pair.drifts if view.verbose else say.farthest(pair)
    lines = [
        line for drift in drifts for line in paragraph(printable(f"step {drift.step}: {drift.message}", view), width, first="- ")
    ]
    more = len(pair.drifts) - len(drifts)
    rest = [f"  ... and {more} more (-v shows all)"] if more else []
    return [paint("How far apart", "bold", view), *lines, *rest] if lines else []


def _health(pair: Pair, view: View, width: int) -> list[str]:
    """Return the illnesses that only one of the two runs has."""
    if not (pair.gained or pair.lost):
        return []
    lines = [paint("Health", "bold", view)]
    for title, findings in (("only B: ", pair.gained), ("only A: ", pair.lost)):
        for finding in findings[: _shortened(len(findings), view)]:
            when = words.interval(finding)
            text = f"{finding.severity} {finding.code} {finding.name}" + (f", {when}" if when else "") + f": {finding.message}"
            drawn = paragraph(printable(text, view), width, first=title)
            drawn[0] = drawn[0].replace(finding.severity, paint(finding.severity, finding.severity, view), 1)
            lines += drawn
        lines = _kept(lines, len(findings), view)
    return lines


def _open(pair: Pair, view: View, width: int) -> list[str]:
    """Return the questions without an answer, each with what is missing."""
    answers = say.unjudged(pair)
    if not answers:
        return []
    title = f"No answer: {len(answers)} of {plural(len(pair.answers), 'question')}"
    groups: dict[str, list[str]] = {}
    for answer in answers:
        groups.setdefault(f"{say.WORDS[answer.word]}: {say.missing(answer, pair)}", []).append(say.name_in_words(answer.question))
    lines = []
    for why, names in groups.items():
        lines += paragraph(printable(f"{', '.join(names)}: {why}", view), width, first="- ")
    return [*(paint(line, "bold", view) for line in wrap(title, width)), *lines]


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
    title = [paint(line, "bold", view) for line in wrap(printable(curve.name, view), width)]
    dim = [paint(line, "dim", view) for line in paragraph(printable(caption, view), width)]
    return [*title, *rows, *_mark(curve, pair, room), *dim]


def _mark(curve: Curve, pair: Pair, room: int) -> list[str]:
    """Return the line that points at the parting, or nothing if there is none or it lies beyond the curve."""
    if pair.parting is None or pair.parting.step > curve.steps[-1]:
        return []
    point = bisect_left(curve.steps, pair.parting.step)
    column = bisect_right(starts(len(curve.steps), room), point) - 1
    text = f"step {pair.parting.step}"
    if column + 2 + len(text) <= room:
        return [" " * (MARGIN + column) + f"^ {text}"]
    return [" " * (MARGIN + column - len(text) - 1) + f"{text} ^"]


def columns_of(rows: Sequence[Sequence[str]], width: int, *, right: Collection[int] = ()) -> list[str] | None:
    """Return rows as aligned lines without empty columns; None if they do not fit.

    Args:
        rows: Cells; all rows have the same number.
        width: Columns of the screen.
        right: Columns that are right-aligned, such as numbers.
    """
    used = [index for index in range(len(rows[0])) if any(row[index] for row in rows[1:])]
    widths = {index: max(columns(row[index]) for row in rows) for index in used}
    if sum(widths.values()) + GAP * (len(used) - 1) > width:
        return None
    return [(" " * GAP).join(pad(row[index], widths[index], right=index in right) for index in used).rstrip() for row in rows]


def many(comparison: Comparison, view: View, width: int) -> list[str]:
    """Return a row for each question and a column for each subject, in blocks of as many columns as fit."""
    rows = [["", *say.labels(comparison)], *rows_of(comparison)]
    drawn = _blocks([[printable(cell, view) for cell in row] for row in rows], width - 2)
    legend = LEGEND if comparison.gate is None else GATE_LEGEND
    title = paint("Questions", "bold", view)
    return [title, *(f"  {line}".rstrip() for line in drawn), *(paint(line, "dim", view) for line in paragraph(legend, width))]


def _blocks(rows: list[list[str]], width: int) -> list[str]:
    """Return the table, split into blocks of columns below each other if it is too wide."""
    for across in range(len(rows[0]) - 1, 0, -1):
        starts = range(1, len(rows[0]), across)
        parts = [[[row[0], *row[start : start + across]] for row in rows] for start in starts]
        drawn = [columns_of(part, width, right=range(1, across + 1)) for part in parts]
        if across == 1 or all(block is not None for block in drawn):
            whole = [
                block or [" ".join(cell for cell in row if cell) for row in part]
                for block, part in zip(drawn, parts, strict=True)
            ]
            return [line for block in whole for line in ([*block, ""] if block is not whole[-1] else block)]
    return []
