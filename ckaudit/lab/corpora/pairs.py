"""Tokens learnt by merging the most frequent pair of neighbours again and again (Sennrich et al. 2016)."""

import re
from collections import Counter, defaultdict
from functools import cache, lru_cache
from itertools import pairwise
from random import Random

from ckaudit.lab.corpora.sources import TEXTS
from ckaudit.lab.corpora.tokens import Characters

Pair = tuple[int, int]
WORD = re.compile(r" ?[A-Za-z]+| ?[0-9]| ?[^A-Za-z0-9 ]+| +")


class PairTokens:
    """Characters and what they were merged to. Numbers stay single digits, and no merge joins two words.

    Args:
        merges: The pairs merged, in their order; the first one makes token 96.
    """

    line_break = Characters.line_break

    def __init__(self, merges: list[Pair]) -> None:
        self.merges = merges
        self.count = Characters.count + len(merges)
        self._ranks = {pair: rank for rank, pair in enumerate(merges)}
        self._word = lru_cache(maxsize=10_000)(self._merge_word)

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        return [token for word in WORD.findall(text) for token in self._word(word)]

    def _merge_word(self, word: str) -> list[int]:
        codes = Characters().encode(word)
        while True:
            rank = min((self._ranks[pair] for pair in pairwise(codes) if pair in self._ranks), default=None)
            if rank is None:
                return codes
            codes = merged(codes, self.merges[rank], Characters.count + rank)


@cache
def pair_tokens(corpus: str, *, lines: int = 400, merges: int = 256) -> PairTokens:
    """Return the tokens of a text corpus, learnt from `lines` lines of each of its sources; the same ones always.

    Raises:
        KeyError: If no text corpus has this name.
    """
    rng = Random(f"{corpus}/pairs")
    texts = [draw(rng, held=False).text for draw in TEXTS[corpus].values() for _ in range(lines)]
    return PairTokens(learn(texts, merges))


def learn(texts: list[str], merges: int) -> list[Pair]:
    """Return the pairs to merge: at each turn the most frequent one within words, of several the one of smallest tokens."""
    counts = Counter(word for text in texts for word in WORD.findall(text))
    words = [(Characters().encode(word), count) for word, count in counts.items()]
    pairs: Counter[Pair] = Counter()
    places: defaultdict[Pair, set[int]] = defaultdict(set)

    def enter(index: int, sign: int) -> None:
        codes, count = words[index]
        for pair in pairwise(codes):
            pairs[pair] += sign * count
            places[pair].add(index)

    for index in range(len(words)):
        enter(index, 1)
    found: list[Pair] = []
    while len(found) < merges:
        best = max(pairs, key=lambda pair: (pairs[pair], -pair[0], -pair[1]))
        if pairs[best] <= 0:
            break
        for index in places.pop(best):
            enter(index, -1)
            words[index] = merged(words[index][0], best, Characters.count + len(found)), words[index][1]
            enter(index, 1)
        found.append(best)
    return found


def merged(codes: list[int], pair: Pair, token: int) -> list[int]:
    """Return the codes with `token` in the place of each `pair`, from the left.

    >>> merged([1, 1, 1, 2], (1, 1), 9)
    [9, 1, 2]
    """
    out: list[int] = []
    index = 0
    while index < len(codes):
        is_pair = tuple(codes[index : index + 2]) == pair
        out.append(token if is_pair else codes[index])
        index += 1 + is_pair
    return out
