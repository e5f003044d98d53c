"""What all formats of a comparison share: words, numbers, and the rows of a table of all subjects."""

from collections import Counter
from collections.abc import Iterable

from ckaudit.contract.schema.diff import BAD_WORDS, OPEN_WORDS, Answer, Comparison, Departure, Drift, Pair, Unlike, Word
from ckaudit.contract.schema.numbers import Number
from ckaudit.diff.combine import GRAVEST
from ckaudit.reports.words import number
from ckaudit.wording import first_names

WORDS: dict[Word, str] = {
    "same": "same",
    "within_noise": "within noise",
    "better": "better",
    "worse": "worse",
    "different": "different",
    "incomparable": "incomparable",
    "not_recorded": "not recorded",
}
GATE_WORDS = {"passed": "PASS", "failed": "FAIL", "incomparable": "INCOMPARABLE"}
ABSENT = "-"
MAX_LETTERS = 48  # letters of a setting; the rest is shown with -v
MAX_LISTED = 4  # the number of names that are still readable in a sentence
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
GATE_LEGEND = "= same, ~ within noise, + better, ! worse, / different, ? no answer, () does not count; the canary against each"


def name_in_words(name: str) -> str:
    """Return a contract name as words.

    >>> name_in_words("loss_at_equal_tokens")
    'loss at equal tokens'
    """
    return name.replace("_", " ")


def value(side: Number | None) -> str:
    """Return a value as a cell; a missing one is a dash, which is not a number."""
    return ABSENT if side is None else number(side)


def difference(left: Number | None, right: Number | None) -> str:
    """Return the signed difference of two finite values, else an empty string.

    >>> difference(2.0, 2.5), difference(2.0, "NaN")
    ('+0.5', '')
    """
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return ""
    apart = right - left
    return ("+" if apart > 0 else "") + number(apart, digits=3)


def share(left: Number | None, right: Number | None) -> str:
    """Return the difference relative to the first value, if it can be divided by.

    >>> share(2.0, 2.5), share(0.0, 1.0)
    ('+25 %', '')
    """
    if not isinstance(left, int | float) or not isinstance(right, int | float) or not left:
        return ""
    percent = 100 * (right - left) / abs(left)
    return f"{percent:+.3g} %" if percent else "0 %"


def unit(name: str) -> str:
    """Return the unit that follows a number: nothing for a plain number."""
    return "" if name == "1" else name


def judged(pair: Pair) -> list[Answer]:
    """Return the questions that have an answer, except a single one without numbers that repeats the verdict."""
    if len(pair.answers) == 1 and pair.answers[0].message == pair.verdict and pair.answers[0].left is None:
        return []
    return [answer for answer in pair.answers if answer.word not in OPEN_WORDS]


def value_cells(left: Number | None, right: Number | None) -> tuple[str, str]:
    """Return two values as cells; if both are missing, the question has no numbers and the cells are empty."""
    return ("", "") if left is None and right is None else (value(left), value(right))


def unjudged(pair: Pair) -> list[Answer]:
    """Return the questions without an answer."""
    return [answer for answer in pair.answers if answer.word in OPEN_WORDS]


def questions_voided(unlike: Unlike, pair: Pair) -> list[str]:
    """Return the questions that were asked but cannot be answered because of a difference."""
    return [name_in_words(answer.question) for answer in pair.answers if answer.question in unlike.invalidates]


def questions_voided_text(unlike: Unlike, pair: Pair, *, limit: int | None = MAX_LISTED) -> str:
    """Return the same as text, with the first `limit` of them, or an empty string."""
    return first_names(questions_voided(unlike, pair), limit)


def verdict(compared: Comparison | Pair) -> str:
    """Return the verdict without the word that the badge already shows."""
    whole = compared.verdict.removeprefix("Different, and ")
    head, colon, rest = whole.partition(": ")
    return rest if colon and head.lower() in (WORDS[compared.word], "not comparable") else whole


def headline(comparison: Comparison, left: str, right: str) -> str:
    """Return the sentence next to the badge: for one pair its verdict, for several a count of verdicts, for a gate its own.

    Args:
        comparison: What was compared.
        left: Name of the reference in that sentence.
        right: Name of the other subject in that sentence.
    """
    if comparison.gate is not None:
        return comparison.verdict
    if len(comparison.pairs) == 1:
        text = verdict(comparison)
        return f"{right} is {WORDS[comparison.word]} than {left}: {text}" if comparison.word in ("better", "worse") else text
    counts = Counter(pair.word for pair in comparison.pairs)
    text = ", ".join(f"{counts[word]} {WORDS[word]}" for word in GRAVEST if counts[word])
    return f"{len(comparison.pairs)} against {left}: {text}"


def missing(answer: Answer, pair: Pair) -> str:
    """Return why a question has no answer, without repeating what was said of a difference."""
    named = [unlike.name for unlike in pair.unlike if unlike.message and unlike.message in answer.message]
    if named:
        return f"not alike: {', '.join(named)}"
    return answer.message.removeprefix(f"{WORDS[answer.word]}: ")


def meaning(unlike: Unlike) -> str:
    """Return the meaning of a difference, with its name and both sides if the sentence lacks them."""
    return unlike.message if unlike.name in unlike.message else f"{unlike.name}: {sides(unlike)}; {unlike.message}"


def farthest(pair: Pair) -> list[Drift]:
    """Return, for each measure, the part that has drifted the farthest."""
    farthest_of: dict[str, Drift] = {}
    for drift in pair.drifts:
        best = farthest_of.get(drift.measure)
        if best is None or _size(drift) > _size(best):
            farthest_of[drift.measure] = drift
    return list(farthest_of.values())


def _size(drift: Drift) -> float:
    """Return a distance as a number to rank by; one that is not finite ranks as the farthest."""
    return abs(drift.value) if isinstance(drift.value, int | float) else float("inf")


def sides(unlike: Unlike, *, whole: bool = False) -> str:
    """Return the value of both sides, shortened if it is long unless all of it is requested."""
    return f"{_side_text(unlike.left, whole=whole)} | {_side_text(unlike.right, whole=whole)}"


def _side_text(word: str | None, *, whole: bool) -> str:
    if word is None:
        return "not recorded"
    return word if whole or len(word) <= MAX_LETTERS else word[: MAX_LETTERS - 3] + "..."


def place(change: Departure | Drift) -> str:
    """Return what moved: statistic and tensor, or measure, section and tensor."""
    head = change.statistic if isinstance(change, Departure) else f"{change.measure} {change.section}"
    if not change.where or change.where.startswith(f"{head}/"):
        return change.where or head
    return f"{head} of {change.where}"


def numbers(departure: Departure) -> str:
    """Return both values of a departure and the difference that noise explains, if any."""
    if departure.left is None and departure.right is None:
        return ""
    end = f" {unit(departure.unit)}" if unit(departure.unit) else ""
    return f"{value(departure.left)} | {value(departure.right)}{end}" + (
        f", noise {value(departure.band)}" if departure.band else ""
    )


def labels(comparison: Comparison) -> list[str]:
    """Return a short name for each subject: A and B if there are two, else its number.

    >>> [f"[{number}]" for number in (1, 2)]
    ['[1]', '[2]']
    """
    if len(comparison.subjects) == 2:
        return ["A", "B"]
    return [f"[{place}]" for place in range(1, len(comparison.subjects) + 1)]


def questions(comparison: Comparison) -> list[Answer]:
    """Return each question that any pair asks, once, in catalogue order, preferably with a numeric answer."""
    asked: dict[str, Answer] = {}
    for answer in (answer for pair in comparison.pairs for answer in pair.answers):
        if answer.question not in asked or asked[answer.question].right is None:
            asked[answer.question] = answer
    return list(asked.values())


def answer_of(pair: Pair, question: str) -> Answer | None:
    """Return a pair's answer to a question, or None if it was not asked."""
    return next((answer for answer in pair.answers if answer.question == question), None)


def badge(comparison: Comparison) -> str:
    """Return the overall verdict as a word in capitals."""
    return GATE_WORDS[comparison.gate.outcome] if comparison.gate else WORDS[comparison.word].upper()


def comparison_method(comparison: Comparison, read: str) -> str:
    """Return how the comparison was made: command, axis, files if they were counted, and the tool."""
    by = "" if comparison.axis == "step" else f" by {comparison.axis}"
    return ", ".join([comparison.command + by, *([f"{read} read"] if comparison.files else []), comparison.tool])


def joined_names(names: Iterable[str]) -> str:
    """Return names as one list for a sentence."""
    return ", ".join(names)


# The rows of a table of all subjects.
def rows_of(comparison: Comparison) -> list[list[str]]:
    """Return the cells below the heads: the value of each subject with its sign; the overall verdict is the first row."""
    whole = [_sign(pair.word) + " " + WORDS[pair.word] for pair in comparison.pairs]
    rows = [["all in all", *_placed(comparison, "", whole)]]
    for question in questions(comparison):
        answers = [answer_of(pair, question.question) for pair in comparison.pairs]
        behind = unit(question.unit)
        name = name_in_words(question.question) + (f", {behind}" if behind else "")
        if comparison.gate is None:
            reference = next((value(answer.left) for answer in answers if answer and answer.left is not None), "")
            cells = ["" if answer is None else _signed(answer, answer.right) for answer in answers]
            rows.append([name, reference, *cells])
        else:
            canary = next((value(answer.right) for answer in answers if answer and answer.right is not None), "")
            cells = ["" if answer is None else _signed(answer, _own_value(answer)) for answer in answers]
            rows.append([name, *cells, canary])
    return rows


def _own_value(answer: Answer) -> Number | None:
    """Return the first run's own value."""
    return answer.left if answer.left_alone is None else answer.left_alone


def _placed(comparison: Comparison, reference: str, cells: list[str]) -> list[str]:
    """Return the cells of all pairs and that of the subject they share: the first, or for a gate the last."""
    return [reference, *cells] if comparison.gate is None else [*cells, reference]


def _signed(answer: Answer, number: Number | None) -> str:
    """Return the sign of an answer with its value, in brackets if it does not count; without numbers only the sign."""
    sign = f"({_sign(answer.word)})" if answer.excused and answer.word in BAD_WORDS else _sign(answer.word)
    return sign if answer.left is None and answer.right is None else f"{sign} {value(number)}"


def _sign(word: Word) -> str:
    return SIGNS[word]
