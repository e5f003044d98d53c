"""Batches of examples to be classified, made from a generator of random numbers for each."""

from collections.abc import Callable
from zlib import crc32

import torch
from torch import Generator, Tensor

from ckaudit.lab.batch import Batch
from ckaudit.lab.corpora.epochs import row_number
from ckaudit.lab.plan import Data

Make = Callable[[int, Generator], Tensor]


class ClassCorpus:
    """Examples of classes that come equally often.

    Args:
        plan: How many in a batch; its length, tokens and shares mean nothing here.
        seed: Of the training examples.
        classes: How many there are.
        make: Makes an example of a class.
    """

    def __init__(self, plan: Data, seed: int, *, classes: int, make: Make) -> None:
        self._plan, self._seed, self.vocabulary, self._make = plan, seed, classes, make

    def batch(self, step: int, *, part: int = 0, parts: int = 1) -> Batch:
        """Return the batch of a step, or a part of it: the same examples, however many parts it comes in."""
        count = self._plan.batch_size // parts
        first = (step - 1) * self._plan.batch_size + part * count
        return self._stack(range(first, first + count), id=f"{step}/{part}")

    def held_out(self) -> Batch:
        """Return the held-out examples, the same under every seed; with nothing held apart, the first of the training set."""
        numbers = range(4 * self._plan.held_rows)  # one target each, where a row of text has many
        return self._stack(numbers, name="held out") if self._plan.held_apart else self._stack(numbers)

    def _stack(self, numbers: range, *, name: str | None = None, id: str | None = None) -> Batch:  # noqa: A002
        rows = [number if name else row_number(number, rows=self._plan.rows, seed=self._seed) for number in numbers]
        made = [self._example(name or f"{self._seed}/row", row) for row in rows]
        return Batch(inputs=torch.stack([each for each, _ in made]), targets=torch.tensor([label for _, label in made]), id=id)

    def _example(self, name: str, number: int) -> tuple[Tensor, int]:
        generator = seeded(f"{name}/{number}")
        label = int(torch.randint(self.vocabulary, (), generator=generator))
        return self._make(label, generator), label


def seeded(name: str) -> Generator:
    """Return a generator of random numbers that a name seeds."""
    return Generator().manual_seed(crc32(name.encode()))
