"""Batches of tokens, cut from lines that are drawn anew for each batch or once for a training set."""

from collections.abc import Mapping
from random import Random

import torch
from msgspec import Struct
from torch import Tensor

from ckaudit.lab.batch import Batch
from ckaudit.lab.corpora.epochs import row_number
from ckaudit.lab.corpora.line import CorpusLine
from ckaudit.lab.corpora.pairs import pair_tokens
from ckaudit.lab.corpora.sources import TEXTS
from ckaudit.lab.corpora.tokens import Characters, Tokens
from ckaudit.lab.plan import Data

GOLDEN = 0.6180339887498949


class TextRow(Struct, frozen=True):
    """The lines of a row and its tokens, one more than it has predictions; `slices` says what each target counts for."""

    lines: list[CorpusLine]
    codes: list[int]
    slices: list[str | None]


class TextCorpus:
    """Rows of tokens, one line of text after the other, all of one source; every row begins with a line break.

    Args:
        plan: Which lines, cut into what, and how many in a row and a batch.
        seed: Of the training rows.

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
        """Return the batch of a step, or a part of it: the same rows, however many parts it comes in."""
        rows = self._plan.batch_size // parts
        first = (step - 1) * self._plan.batch_size + part * rows
        return self._stack([self._training_row(first + index) for index in range(rows)], id=f"{step}/{part}")

    def held_out(self) -> Batch:
        """Return the held-out rows: the same ones under every seed, of all sources alike.

        With nothing held apart they are the first rows of the training set.
        """
        count = self._plan.held_rows
        if not self._plan.held_apart:
            return self._stack([self._training_row(number) for number in range(count)])
        return self._stack([self._row("held out", number, self._even, held=True) for number in range(count)])

    def _training_row(self, number: int) -> TextRow:
        number = row_number(number, rows=self._plan.rows, seed=self._seed)
        return self._row(f"{self._seed}/row", number, self._shares, held=False)

    def _row(self, name: str, number: int, shares: Mapping[str, float], *, held: bool) -> TextRow:
        """Draw a row; steps of the golden section through the shares give every batch nearly the same of each source."""
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
    """Return the name that lies at a place, 0 to 1, of shares laid end to end."""
    left = place * sum(shares.values())
    for name, share in shares.items():
        left -= share
        if left < 0:
            return name
    return name


def _slices(marks: list[list[str | None]]) -> dict[str, Tensor]:
    names = sorted({mark for row in marks for mark in row if mark})
    return {name: torch.tensor([[mark == name for mark in row] for row in marks]) for name in names}
