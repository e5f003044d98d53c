"""Chains of additions and subtractions, each going on from the result before."""

from random import Random

from ckaudit.lab.corpora.apart import choose
from ckaudit.lab.corpora.line import CorpusLine


def chain(rng: Random) -> tuple[int, ...]:
    """Draw a start and what is added in turn, without leaving 0 to 99."""
    numbers = [rng.randint(2, 60)]
    for _ in range(rng.randint(2, 4)):
        total = sum(numbers)
        numbers.append(rng.randint(1, 30) if total < 40 else -rng.randint(1, 30))
    return tuple(numbers)


def draw(rng: Random, *, held: bool) -> CorpusLine:
    """Draw one chain, with numbers that are held out or are not.

    >>> draw(Random(1), held=False).text
    '10 + 28 = 38, 38 + 26 = 64, 64 - 25 = 39, 39 + 3 = 42: even'
    """
    numbers = choose(rng, chain, held=held)
    total, parts = numbers[0], []
    for number in numbers[1:]:
        sign = "+" if number > 0 else "-"
        parts.append(f"{total} {sign} {abs(number)} = {total + number}")
        total += number
    return CorpusLine(text=f"{', '.join(parts)}: {'odd' if total % 2 else 'even'}", source="sums", slice="sums")
