"""Batches of tokens, cut from lines that are drawn anew for each batch or once for a training set."""

from random import Random
from typing import Protocol

import torch
from torch import Tensor

from ckaudit.lab.batch import Batch
from ckaudit.lab.corpora import verbs
from ckaudit.lab.corpora.line import Line
from ckaudit.lab.corpora.tokens import Characters, Tokens
from ckaudit.lab.plan import Data


class Maker(Protocol):
    """Draws lines."""

    def __call__(self, rng: Random, *, held: bool) -> Line:
        """Draw one line, of those held out or of all others."""
        ...


class TextCorpus:
    """Rows of tokens, one line of text after the other; every row begins with a line break.

    Args:
        plan: Which lines, cut into what, and how many in a row and a batch.
        seed: Of the training rows.
    """

    def __init__(self, plan: Data, seed: int) -> None:
        self._plan, self._seed = plan, seed
        self._maker: Maker = verbs.draw
        self.tokens: Tokens = Characters()
        self.vocabulary = self.tokens.count

    def batch(self, step: int, *, part: int = 0, parts: int = 1) -> Batch:
        """Return the batch of a step, or a part of it."""
        rows = self._plan.batch_size // parts
        if self._plan.rows is None:
            rng = Random(f"{self._seed}/{step}/{part}")
            return self._stack([self._draw_row(rng, held=False) for _ in range(rows)], id=f"{step}/{part}")
        first = (step - 1) * self._plan.batch_size + part * rows
        return self._stack([self._kept_row(first + index) for index in range(rows)], id=f"{step}/{part}")

    def held_out(self) -> Batch:
        """Return the held-out rows, the same under every seed; with nothing held apart, rows of the training set."""
        rng = Random("held out") if self._plan.held_apart else Random(f"{self._seed}/1/0")
        rows = [self._draw_row(rng, held=self._plan.held_apart) for _ in range(self._plan.held_rows)]
        return self._stack(rows)

    def _kept_row(self, number: int) -> list[Line]:
        """Return a row of a training set that is gone through in epochs, each in an order of its own."""
        count = self._plan.rows or 1
        epoch, place = divmod(number, count)
        order = Random(f"{self._seed}/order/{epoch}").sample(range(count), count)
        return self._draw_row(Random(f"{self._seed}/row/{order[place]}"), held=False)

    def _draw_row(self, rng: Random, *, held: bool) -> list[Line]:
        lines: list[Line] = []
        length = 0
        while length <= self._plan.length:
            lines.append(self._maker(rng, held=held))
            length += len(self.tokens.encode(lines[-1].text)) + 1
        return lines

    def _stack(self, rows: list[list[Line]], *, id: str | None = None) -> Batch:  # noqa: A002
        length = self._plan.length
        codes = torch.tensor([self._codes(row)[: length + 1] for row in rows])  # (B, T + 1)
        sources = {line.source for row in rows for line in row}
        return Batch(
            inputs=codes[:, :-1].contiguous(),
            targets=codes[:, 1:].contiguous(),
            source=next(iter(sources)) if len(sources) == 1 else None,
            id=id,
            slices=self._slices(rows),
        )

    def _codes(self, row: list[Line]) -> list[int]:
        line_break = self.tokens.line_break
        codes = [line_break]
        for line in row:
            codes += [*self.tokens.encode(line.text), line_break]
        return codes

    def _slices(self, rows: list[list[Line]]) -> dict[str, Tensor]:
        names = sorted({line.slice for row in rows for line in row if line.slice})
        marks = [[line.slice for line in row for _ in range(len(self.tokens.encode(line.text)) + 1)] for row in rows]
        length = self._plan.length
        return {name: torch.tensor([[mark == name for mark in row[:length]] for row in marks]) for name in names}
