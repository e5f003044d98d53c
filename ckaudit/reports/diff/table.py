"""Columns of a comparison: aligned where they fit, and one table for more than two subjects."""

from collections.abc import Collection, Sequence

from ckaudit.contract.schema.diff import Answer, Comparison, Word
from ckaudit.contract.schema.numbers import Number
from ckaudit.reports.diff import sentences as say
from ckaudit.reports.terminal.text import columns, pad, paint, paragraph, shown
from ckaudit.reports.view import View

GAP = 2
SIGNS: dict[Word, str] = {
    "same": "=",
    "within_noise": "~",
    "better": "+",
    "worse": "!",
    "different": "/",
    "incomparable": "?",
    "not_recorded": "?",
}
LEGEND = "= same, ~ within noise, + better, ! worse, / different, ? no answer; against the first"
GATE_LEGEND = "= same, ~ within noise, + better, ! worse, / different, ? no answer; the canary against each"


def columns_of(rows: Sequence[Sequence[str]], width: int, *, right: Collection[int] = ()) -> list[str] | None:
    """Return rows as aligned lines, columns that hold nothing left out; None where they do not fit.

    Args:
        rows: Cells; every row has as many.
        width: Columns of the screen.
        right: Columns that are set flush right, as numbers are.
    """
    used = [index for index in range(len(rows[0])) if any(row[index] for row in rows[1:])]
    widths = {index: max(columns(row[index]) for row in rows) for index in used}
    if sum(widths.values()) + GAP * (len(used) - 1) > width:
        return None
    return [(" " * GAP).join(_cell(row[index], widths[index], flush=index in right) for index in used).rstrip() for row in rows]


def _cell(text: str, width: int, *, flush: bool) -> str:
    return " " * (width - columns(text)) + text if flush else pad(text, width)


def many(comparison: Comparison, view: View, width: int) -> list[str]:
    """Return a row for each question and a column for each subject, in blocks of as many columns as fit."""
    rows = [["", *say.labels(comparison)], *rows_of(comparison)]
    drawn = _blocks([[shown(cell, view) for cell in row] for row in rows], width - 2)
    legend = LEGEND if comparison.gate is None else GATE_LEGEND
    title = paint("Questions", "bold", view)
    return [title, *(f"  {line}".rstrip() for line in drawn), *(paint(line, "dim", view) for line in paragraph(legend, width))]


def rows_of(comparison: Comparison) -> list[list[str]]:
    """Return the cells below the heads: the value of each subject with its sign, and first of all the whole."""
    whole = [_sign(pair.word) + " " + say.WORDS[pair.word] for pair in comparison.pairs]
    rows = [["all in all", *_placed(comparison, "", whole)]]
    for question in say.questions(comparison):
        answers = [say.answer_of(pair, question.question) for pair in comparison.pairs]
        unit = say.unit(question.unit)
        name = say.spoken(question.question) + (f", {unit}" if unit else "")
        if comparison.gate is None:
            reference = next((say.value(answer.left) for answer in answers if answer and answer.left is not None), "")
            cells = ["" if answer is None else _signed(answer, answer.right) for answer in answers]
            rows.append([name, reference, *cells])
        else:
            canary = next((say.value(answer.right) for answer in answers if answer and answer.right is not None), "")
            cells = ["" if answer is None else _signed(answer, answer.left) for answer in answers]
            rows.append([name, *cells, canary])
    return rows


def _placed(comparison: Comparison, reference: str, cells: list[str]) -> list[str]:
    """Return the cells of all pairs with that of the subject they share: the first, or of a gate the last."""
    return [reference, *cells] if comparison.gate is None else [*cells, reference]


def _signed(answer: Answer, value: Number | None) -> str:
    """Return the sign of an answer with a value; a question without numbers has the sign alone."""
    return _sign(answer.word) if answer.left is None and answer.right is None else f"{_sign(answer.word)} {say.value(value)}"


def _sign(word: Word) -> str:
    return SIGNS[word]


def _blocks(rows: list[list[str]], width: int) -> list[str]:
    """Return the table, cut into blocks of columns below each other where it is too wide."""
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
