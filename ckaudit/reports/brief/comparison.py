"""A comparison in under 400 tokens: the verdict, what is worse, where it began, how the runs differ, and open questions."""

from collections.abc import Iterator
from shlex import quote

from ckaudit.contract.schema.diff import Comparison, Pair, Word
from ckaudit.diff.combine import GRAVEST
from ckaudit.reports.brief.text_budget import MAX_SUBJECT, clipped, fitted
from ckaudit.reports.diff import sentences as say
from ckaudit.reports.escape import visible
from ckaudit.reports.view import View
from ckaudit.reports.words import by_code
from ckaudit.wording import first_names

REPORTED_WORDS: tuple[Word, ...] = ("worse", "different", "better")
MAX_REASONS = 3


def render(comparison: Comparison, view: View) -> str:  # noqa: ARG001  its length is fixed
    """Return the key facts of a comparison; the last line says where to find the rest."""
    return brief(comparison, more=_command(comparison))


def brief(comparison: Comparison, *, more: str) -> str:
    """Return the same summary with another last line."""
    names = ("A", "B") if len(comparison.pairs) == 1 else (comparison.subjects[0], comparison.subjects[-1])
    head = [clipped(f"{say.badge(comparison)}: {say.headline(comparison, *names)}", 260)]
    head += [clipped(f"- {reason}", 180) for reason in _reasons(comparison)]
    if len(comparison.pairs) == 1:
        (pair,) = comparison.pairs
        head.append(f"A: {clipped(pair.left, MAX_SUBJECT)}; B: {clipped(pair.right, MAX_SUBJECT)}")
        return fitted(head, _answers(pair), [*_tail(pair), *_notes(comparison), more])
    return fitted(head, _pairs(comparison), [*_notes(comparison), more])


def _reasons(comparison: Comparison) -> list[str]:
    """Return why a gate did not pass, if no answer to a question says so."""
    messages = [answer.message for pair in comparison.pairs for answer in pair.answers]
    reasons = comparison.gate.reasons if comparison.gate else []
    return [reason for reason in reasons if not any(message in reason for message in messages)][:MAX_REASONS]


def _command(comparison: Comparison) -> str:
    """Return the command that shows the rest; for runs whose names are short and plain."""
    plain = all(visible(name) == name and len(name) <= MAX_SUBJECT for name in comparison.subjects)
    if comparison.command != "diff" or len(comparison.pairs) != 1 or not plain:
        return f"more: the same ckaudit {comparison.command} with -v and without --format"
    return f"more: ckaudit diff {' '.join(map(quote, comparison.subjects))} -v"


def _answers(pair: Pair) -> dict[str, str]:
    """Return a line for each question whose answer is a difference, the most severe first."""
    lines = {}
    for word in REPORTED_WORDS:
        for answer in pair.answers:
            if answer.word == word:
                excuse = f" (does not count: {answer.excused})" if answer.excused else ""
                lines[answer.question] = clipped(
                    f"{say.WORDS[word]} {say.name_in_words(answer.question)}: {answer.message}{excuse}", 190
                )
    return lines


def _tail(pair: Pair) -> Iterator[str]:
    """Yield where the runs part, illnesses that only one of them has, differences in setup, and what could not be judged."""
    if pair.parting is not None:
        yield clipped(f"first to part: {pair.parting.message}", 200)
    for side, findings in (("B", pair.gained), ("A", pair.lost)):
        if findings:
            codes = [f"{severity} {code} {name}" for severity, code, name, _ in by_code(findings)]
            yield clipped(f"only {side} is ill with: {first_names(codes, 4)}", 200)
    if pair.unlike:
        unlike = sorted(pair.unlike, key=lambda one: not say.questions_voided(one, pair))
        differences = [f"{one.name} {clipped(say.sides(one), 60)}" for one in unlike]
        yield clipped(f"not alike (A | B): {first_names(differences, 4)}", 320)
    if unjudged := say.unjudged(pair):
        names = [say.name_in_words(answer.question) for answer in unjudged]
        yield clipped(f"no answer to {first_names(names, 5)}: {say.missing(unjudged[0], pair)}", 200)
    for side, limits in (("A", pair.left_limits), ("B", pair.right_limits)):
        if isinstance(limits, str):
            yield clipped(f"of {side}: {limits}", 150)
    yield clipped(f"noise: {pair.noise.message}", 160)


def _pairs(comparison: Comparison) -> dict[str, str]:
    """Return a line for each pair, the most severe verdict first."""
    pairs = sorted(comparison.pairs, key=lambda pair: GRAVEST.index(pair.word))
    return {
        f"{pair.left} {pair.right}": clipped(
            f"{say.WORDS[pair.word]} {clipped(pair.right, 60)} against {clipped(pair.left, 60)}: {say.verdict(pair)}", 260
        )
        for pair in pairs
    }


def _notes(comparison: Comparison) -> list[str]:
    return [clipped(f"note: {note}", 150) for note in comparison.notes[:1]]
