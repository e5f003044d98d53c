"""A batch, where batches come from, and what a model is to do with one: predict the next token, or name a class."""

from functools import lru_cache
from random import Random
from typing import Any, Protocol

import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

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


# What a model is to do.
class Task:
    """Predict the targets of a batch; a target is a token (B, T) or a class (B,)."""

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the logits, (B, T, V) or (B, V)."""
        out: Any = model(batch.inputs)
        return out if isinstance(out, Tensor) else out.logits

    def losses(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the negative log likelihood of each target in nats, shaped like the targets; zero where it is ignored."""
        flat = cross_entropy(logits.float().flatten(0, -2), batch.targets.flatten(), reduction="none", ignore_index=IGNORED)
        return flat.view_as(batch.targets)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the mean over the targets that count; 0 / 0 where none does."""
        return self.losses(logits, batch).sum() / (batch.targets != IGNORED).sum()

    def auxiliary(self, model: nn.Module) -> Tensor | float:
        """Return what modules of the model add to the loss of training after a forward pass, such as that of a router."""
        return sum(getattr(module, "auxiliary", 0.0) for module in model.modules())


class Evaluation:
    """What a model makes of the held-out batch, in pieces that fit in memory.

    Attributes:
        held_out: The batch.
    """

    def __init__(self, task: Task, held_out: Batch, *, rows: int = 64) -> None:
        self._task = task
        self.held_out = held_out
        self._pieces = [
            Batch(inputs=inputs, targets=targets)
            for inputs, targets in zip(held_out.inputs.split(rows), held_out.targets.split(rows), strict=True)
        ]

    @torch.no_grad()
    def values(self, model: nn.Module) -> dict[str, float]:
        """Return `val_loss` and, where there are slices, `slice_val_loss` of each, in nats; the model's mode is left alone."""
        losses = torch.cat([self._task.losses(self._task.logits(model, piece), piece) for piece in self._pieces])
        counted = self.held_out.targets != IGNORED
        masks = {f"slice_val_loss/{name}": mask & counted for name, mask in self.held_out.slices.items()}
        return {name: float(losses[mask].mean()) for name, mask in ({"val_loss": counted} | masks).items() if bool(mask.any())}
