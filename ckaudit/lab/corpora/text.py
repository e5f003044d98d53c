"""Batches of tokens, from lines that are drawn for each batch or once for a training set; and the tokenizers."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cache, lru_cache
from itertools import pairwise
from random import Random
from typing import Protocol

import torch
from msgspec import Struct
from torch import Tensor

from ckaudit.lab.corpora.sources import TEXTS, CorpusLine
from ckaudit.lab.plan import Data
from ckaudit.lab.task import Batch, row_number

GOLDEN = 0.6180339887498949
Pair = tuple[int, int]
WORD = re.compile(r" ?[A-Za-z]+| ?[0-9]| ?[^A-Za-z0-9 ]+| +")


class TextRow(Struct, frozen=True):
    """The lines of a row and its tokens, one more than it has targets; `slices` assigns targets to slices."""

    lines: list[CorpusLine]
    codes: list[int]
    slices: list[str | None]


class TextCorpus:
    """Rows of tokens, one line of text after the other, all of one source; every row begins with a line break.

    Args:
        plan: The lines, the tokenizer, and the sizes of a row and a batch.
        seed: Seed of the training rows.

    Raises:
        KeyError: If no corpus, or no source in `shares`, has this name.
    """

    def __init__(self, plan: Data, seed: int) -> None:
        self._plan, self._seed = plan, seed
        self._sources = TEXTS[plan.corpus]
        self.tokens: Tokens = Characters() if plan.tokens == "characters" else pair_tokens(plan.corpus)
        self.vocabulary = self.tokens.count
        self._even = dict.fromkeys(self._sources, 1.0)
        self._shares = {name: self._even[name] * share for name, share in plan.shares.items()} or self._even

    def batch(self, step: int, *, part: int = 0, parts: int = 1) -> Batch:
        """Return the batch of a step, or a part of it: the same rows in any number of parts."""
        rows = self._plan.batch_size // parts
        first = (step - 1) * self._plan.batch_size + part * rows
        return self._stack([self._training_row(first + index) for index in range(rows)], id=f"{step}/{part}")

    def held_out(self) -> Batch:
        """Return the held-out rows: the same for every seed, with equal shares of all sources.

        If nothing is held apart they are the first rows of the training set.
        """
        count = self._plan.held_rows
        if not self._plan.held_apart:
            return self._stack([self._training_row(number) for number in range(count)])
        return self._stack([self._row("held out", number, self._even, held=True) for number in range(count)])

    def _training_row(self, number: int) -> TextRow:
        number = row_number(number, rows=self._plan.rows, seed=self._seed)
        return self._row(f"{self._seed}/row", number, self._shares, held=False)

    def _row(self, name: str, number: int, shares: Mapping[str, float], *, held: bool) -> TextRow:
        """Draw a row; golden-section steps through the shares give every batch nearly the same number of each source."""
        rng, draw = Random(f"{name}/{number}"), self._sources[_at(number * GOLDEN % 1, shares)]
        row = TextRow([], [self.tokens.line_break], [])
        while len(row.codes) <= self._plan.length:
            line = draw(rng, held=held)
            codes = [*self.tokens.encode(line.text), self.tokens.line_break]
            row.lines.append(line)
            row.codes.extend(codes)
            row.slices.extend([line.slice] * len(codes))
        return row

    def _stack(self, rows: list[TextRow], *, id: str | None = None) -> Batch:  # noqa: A002
        length = self._plan.length
        codes = torch.tensor([row.codes[: length + 1] for row in rows])  # (B, T + 1)
        sources = {line.source for row in rows for line in row.lines}
        return Batch(
            inputs=codes[:, :-1].contiguous(),
            targets=codes[:, 1:].contiguous(),
            source=next(iter(sources)) if len(sources) == 1 else None,
            id=id,
            slices=_slices([row.slices[:length] for row in rows]),
        )


def _at(place: float, shares: Mapping[str, float]) -> str:
    """Return the name at a position, 0 to 1, of concatenated shares."""
    left = place * sum(shares.values())
    for name, share in shares.items():
        left -= share
        if left < 0:
            return name
    return name


def _slices(marks: list[list[str | None]]) -> dict[str, Tensor]:
    names = sorted({mark for row in marks for mark in row if mark})
    return {name: torch.tensor([[mark == name for mark in row] for row in marks]) for name in names}


# Tokenizers.
class Tokens(Protocol):
    """Converts texts to tokens."""

    count: int
    """Size of the vocabulary."""
    line_break: int
    """The token between two lines."""

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        ...


class Characters:
    """A token for each printable ASCII character, and one for a line break."""

    count = 96
    line_break = 0

    def encode(self, text: str) -> list[int]:
        """Return one token for each character.

        >>> Characters().encode(" a~")
        [1, 66, 95]
        """
        return [ord(character) - 31 for character in text]


# Tokens from repeated merges of the most frequent pair of neighbours (Sennrich et al. 2016).
class PairTokens:
    """Characters and their merges. Numbers stay single digits, and no merge joins two words.

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
    """Return the tokenizer of a text corpus, learnt from `lines` lines of each of its sources; it is always the same.

    Raises:
        KeyError: If no text corpus has this name.
    """
    rng = Random(f"{corpus}/pairs")
    texts = [draw(rng, held=False).text for draw in TEXTS[corpus].values() for _ in range(lines)]
    return PairTokens(learn(texts, merges))


def learn(texts: list[str], merges: int) -> list[Pair]:
    """Return the pairs to merge: at each turn the most frequent one within words; of equals the one with the smallest tokens."""
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
    """Return the codes with each `pair` replaced by `token`, from the left.

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
