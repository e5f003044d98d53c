"""The interview on a screen: the verdict, then a table of answers for each phase, and the commands that show more."""

from collections import Counter
from collections.abc import Iterator

from ckaudit.contract.schema.report import WORDS, Answer, Phase, Pointer, Report, Word
from ckaudit.reports.terminal.screen_text import paint, paragraph, printable, wrap
from ckaudit.reports.view import View
from ckaudit.wording import plural

COLOURS: dict[Word, str] = {"good": "ok", "watch": "sev2", "bad": "sev1", "not_recorded": "dim", "not_applicable": "dim"}
ROOM = max(len(word) for word in WORDS)
NARROW_COLUMNS = 80  # on narrower screens the sentence is below the question, not next to the words


def interview(report: Report, view: View) -> list[list[str]]:
    """Return the counts, then a section per phase; answers without numbers only by name, unless in verbose mode."""
    width = view.columns()
    sections = [_phase(phase, view, width) for phase in report.interview]
    answers = [answer for phase in report.interview for answer in phase.answers]
    counts = Counter(answer.word for answer in answers)
    counted = ", ".join(f"{counts[word]} {word.replace('_', ' ')}" for word in WORDS if counts[word])
    return [
        [paint(line, "bold", view) for line in wrap(f"{plural(len(answers), 'question')}: {counted}", width)],
        *sections,
        _pointers(report, view, width),
    ]


def _phase(phase: Phase, view: View, width: int) -> list[str]:
    """Return the title of a phase, its answers, what was not recorded, and its verdict."""
    lines = [paint(line, "bold", view) for line in wrap(f"Phase {phase.number}: {printable(phase.title, view)}", width)]
    answers = [answer for answer in phase.answers if view.verbose or answer.word not in ("not_recorded", "not_applicable")]
    for answer in answers:
        lines += _answer(answer, view, width)
    for word in () if view.verbose else ("not_recorded", "not_applicable"):
        left = [answer for answer in phase.answers if answer.word == word]
        if left:
            text = f"{word.replace('_', ' ')}: {', '.join(answer.id for answer in left)}"
            if missing := dict.fromkeys(name for answer in left for name in answer.missing):
                text += f"; missing {', '.join(missing)}"
            lines += [paint(line, "dim", view) for line in paragraph(printable(text, view), width)]
    if phase.verdict:
        lines += [paint(line, "bold", view) for line in paragraph(printable(phase.verdict, view), width)]
    return lines


def _answer(answer: Answer, view: View, width: int) -> Iterator[str]:
    """Yield identity, word and question on one line, followed by what the answer is based on."""
    word = answer.word.replace("_", " ")
    head = f"  {answer.id:<5}  "
    first, *rest = wrap(printable(answer.question, view), width - len(head) - ROOM - 2)
    yield f"{head}{paint(word, COLOURS[answer.word], view)}{' ' * (ROOM - len(word) + 2)}{first}"
    yield from (" " * (len(head) + ROOM + 2) + line for line in rest)
    indent = " " * (len(head) if width < NARROW_COLUMNS else len(head) + ROOM + 2)
    text = paragraph(printable(answer.sentence, view), width, indent=indent)
    yield from (paint(line, "dim", view) for line in text)
    if view.verbose and answer.missing:
        yield from (paint(line, "dim", view) for line in paragraph(f"missing: {', '.join(answer.missing)}", width, indent=indent))


def _pointers(report: Report, view: View, width: int) -> list[str]:
    """Return the commands that show more, each once, unwrapped so that they can be copied."""
    pointers: dict[str, Pointer] = {pointer.id: pointer for phase in report.interview for pointer in phase.pointers}
    if not pointers:
        return []
    lines = [paint("Where to look on", "bold", view)]
    for pointer in sorted(pointers.values(), key=lambda pointer: pointer.id):
        why = f" ({pointer.why})" if pointer.why else ""
        lines += paragraph(printable(f"{pointer.id}  {pointer.question}{why}", view), width)
        lines.append("    " + printable(pointer.command, view))
    return lines + wrap("ckaudit explain D4.2 says what is asked, and what is good and bad", width)
