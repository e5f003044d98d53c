"""Texts that make a backtracking search slow, made from a pattern itself: each of its repeats is pumped, then made to fail."""

import re
import warnings
from collections.abc import Iterator
from time import perf_counter

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import sre_constants as kinds
    import sre_parse

MANY = 60  # a repeat of up to so many costs no more than a constant
ENDS = ("", "\0", "!", "\n", "|", " x", ":")
PUMPS = (" ", "0", "a", "A", "_", ".", ":", "|", "[", "(", '"', "{", "-", "/", "\t", "\r", ",", "=", "\\", "é", "\x1b[")
PUMPS += ("0 ", "a ", "a.", "a_", "a:", "0,", "[0", " |", ": ", ":0 ", "A_", "a b ", '":', "a=0 ", "a 0 ", "\x1b]", "0/0 ", "- ")
CATEGORIES = {
    kinds.CATEGORY_DIGIT: "0",
    kinds.CATEGORY_SPACE: " ",
    kinds.CATEGORY_WORD: "a0_",
    kinds.CATEGORY_NOT_DIGIT: "a ",
    kinds.CATEGORY_NOT_SPACE: "a0",
    kinds.CATEGORY_NOT_WORD: " -",
}
PLAIN = "a0 _-.:/|A\t"
LADDER = tuple(2**power for power in range(7, 13))
SHORT = 0.004  # s: what takes less at the top of the ladder cannot have climbed it steeply


def attacks(pattern: "re.Pattern") -> Iterator[tuple[str, str, str]]:
    """Yield beginnings, what is repeated, and ends."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    parsed = sre_parse.parse(text, pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags)
    seen = set()
    for before, bodies in _repeats(list(parsed), ""):
        for start in {before, ""}:
            for body in bodies:
                for end in ENDS:
                    seen.add((start, body, end))
    seen |= {("", pump, end) for pump in PUMPS for end in ENDS[:2]}
    yield from sorted(seen)


def _repeats(nodes: list, before: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each long repeat: a text that leads to it, and texts that it takes once."""
    for kind, argument in nodes:
        if kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.POSSESSIVE_REPEAT):
            _, most, body = argument
            if most > MANY:
                yield before, _samples(list(body))
            yield from _repeats(list(body), before)
        elif kind is kinds.SUBPATTERN:
            yield from _repeats(list(argument[-1]), before)
        elif kind is kinds.BRANCH:
            for branch in argument[1]:
                yield from _repeats(list(branch), before)
        elif kind in (kinds.ASSERT, kinds.ASSERT_NOT):
            yield from _repeats(list(argument[1]), before)
        elif kind is kinds.ATOMIC_GROUP:
            yield from _repeats(list(argument), before)
        before += _samples([(kind, argument)])[0]


def _samples(nodes: list) -> list[str]:
    """Return texts that a sequence takes, the shortest of each branch; one at least."""
    texts = [""]
    for kind, argument in nodes:
        texts = [text + more for text in texts for more in _sample(kind, argument)][:24]
    return texts


def _sample(kind: object, argument: object) -> list[str]:
    if kind is kinds.LITERAL:
        return [chr(argument)]
    if kind is kinds.NOT_LITERAL:
        return [letter for letter in PLAIN if letter != chr(argument)]
    if kind is kinds.ANY:
        return list(PLAIN)
    if kind is kinds.IN:
        return _of_set(argument)
    if kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.POSSESSIVE_REPEAT):
        least, _, body = argument
        return [text * max(least, 1) for text in _samples(list(body))]
    if kind is kinds.SUBPATTERN:
        return _samples(list(argument[-1]))
    if kind is kinds.ATOMIC_GROUP:
        return _samples(list(argument))
    if kind is kinds.BRANCH:
        return [text for branch in argument[1] for text in _samples(list(branch))]
    return [""]


def _of_set(members: list) -> list[str]:
    if members[0][0] is kinds.NEGATE:
        refused = re.compile("[" + "".join(_escaped(member) for member in members[1:]) + "]")
        return [letter for letter in (*PLAIN, "\0", "é") if not refused.match(letter)] or ["\0"]
    letters = []
    for kind, argument in members:
        if kind is kinds.LITERAL:
            letters.append(chr(argument))
        elif kind is kinds.RANGE:
            letters.append(chr(argument[0]))
        elif kind is kinds.CATEGORY:
            letters += CATEGORIES[argument]
    return letters


def _escaped(member: tuple) -> str:
    kind, argument = member
    if kind is kinds.LITERAL:
        return re.escape(chr(argument))
    if kind is kinds.RANGE:
        return f"{re.escape(chr(argument[0]))}-{re.escape(chr(argument[1]))}"
    words = {kinds.CATEGORY_DIGIT: r"\d", kinds.CATEGORY_SPACE: r"\s", kinds.CATEGORY_WORD: r"\w"}
    return words.get(argument, r"\W")


def exponent(use, start: str, pump: str, end: str) -> float:
    """Return how the time of a search grows with the length of the text, as the power that the last doublings fit.

    Short times say nothing: where the longest text takes little, no more than 1 is returned.
    """
    for size in LADDER:
        text = start + pump * (size // len(pump) + 1) + end
        if all(_seconds(use, text) > SHORT for _ in range(2)):
            break
    else:
        return 1.0
    half = start + pump * (size // 4 // len(pump) + 1) + end
    long, short = (min(_seconds(use, each) for _ in range(4)) for each in (text, half))
    from math import log2

    return log2(long / max(short, 1e-9)) / 2


def _seconds(use, text: str) -> float:
    begun = perf_counter()
    use(text)
    return perf_counter() - begun
