"""A batch, where batches come from, and which row of a training set comes when."""

from functools import lru_cache
from random import Random
from typing import Protocol

from msgspec import Struct
from torch import Tensor

IGNORED = -100  # a target that the loss leaves out


class Batch(Struct, frozen=True, kw_only=True):
    """What a loader gives.

    Attributes:
        inputs: Tokens (B, T), points (B, F) or pictures (B, C, H, W).
        targets: Tokens (B, T) or classes (B,); `IGNORED` ones do not count.
        source: Where it came from, where it has one source.
        id: The loader's own name of it.
        slices: Which targets belong to a named slice, each shaped like the targets.
    """

    inputs: Tensor
    targets: Tensor
    source: str | None = None
    id: str | None = None
    slices: dict[str, Tensor] = {}

    @property
    def tokens(self) -> int:
        """Targets that count."""
        return int((self.targets != IGNORED).sum())


class Corpus(Protocol):
    """Where batches come from: each a pure function of the seed and the step."""

    vocabulary: int
    """Tokens or classes."""

    def batch(self, step: int, *, part: int = 0, parts: int = 1) -> Batch:
        """Return the batch of a step, or one of several parts of it: those of ranks or of an accumulated update."""
        ...

    def held_out(self) -> Batch:
        """Return what evaluations are made on, always the same."""
        ...


def row_number(number: int, *, rows: int | None, seed: int) -> int:
    """Return which row the `number`th one of a training is: a new one, or of a set gone through in epochs.

    Args:
        number: Rows that came before.
        rows: Rows of the set, each epoch of which has an order of its own; None: all rows are new.
        seed: Of the orders.
    """
    if rows is None:
        return number
    epoch, place = divmod(number, rows)
    return _order(epoch, rows, seed)[place]


@lru_cache(maxsize=2)
def _order(epoch: int, rows: int, seed: int) -> list[int]:
    return Random(f"{seed}/order/{epoch}").sample(range(rows), rows)
