"""Batches, their sources, and the task of a model: predict the next token, or a class."""

from functools import lru_cache
from random import Random
from typing import Any, Protocol

import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

IGNORED = -100  # a target that the loss ignores


class Batch(Struct, frozen=True, kw_only=True):
    """The output of a loader.

    Attributes:
        inputs: Tokens (B, T), points (B, F) or pictures (B, C, H, W).
        targets: Tokens (B, T) or classes (B,); `IGNORED` ones do not count.
        source: Data source of the batch, if it has only one.
        id: The loader's name for the batch.
        slices: Mask of the targets of each named slice, shaped like the targets.
    """

    inputs: Tensor
    targets: Tensor
    source: str | None = None
    id: str | None = None
    slices: dict[str, Tensor] = {}

    @property
    def tokens(self) -> int:
        """Number of targets that count."""
        return int((self.targets != IGNORED).sum())


class Corpus(Protocol):
    """A source of batches, each a pure function of the seed and the step."""

    vocabulary: int
    """Number of tokens or classes."""

    def batch(self, step: int, *, part: int = 0, parts: int = 1) -> Batch:
        """Return the batch of a step, or one of its parts, for ranks or accumulation."""
        ...

    def held_out(self) -> Batch:
        """Return the batch for evaluations, always the same."""
        ...


def row_number(number: int, *, rows: int | None, seed: int) -> int:
    """Return the index of the `number`th row of a training: a new one, or one of a set repeated in epochs.

    Args:
        number: Number of earlier rows.
        rows: Rows of the set, which has a different order in each epoch; None: all rows are new.
        seed: Seed of the orders.
    """
    if rows is None:
        return number
    epoch, place = divmod(number, rows)
    return _order(epoch, rows, seed)[place]


@lru_cache(maxsize=2)
def _order(epoch: int, rows: int, seed: int) -> list[int]:
    return Random(f"{seed}/order/{epoch}").sample(range(rows), rows)


# The task of a model.
class Task:
    """Predict the targets of a batch; a target is a token (B, T) or a class (B,)."""

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the logits, (B, T, V) or (B, V)."""
        out: Any = model(batch.inputs)
        return out if isinstance(out, Tensor) else out.logits

    def losses(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the negative log-likelihood of each target in nats, shaped like the targets; zero for ignored ones."""
        flat = cross_entropy(logits.float().flatten(0, -2), batch.targets.flatten(), reduction="none", ignore_index=IGNORED)
        return flat.view_as(batch.targets)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the mean over the targets that count; 0 / 0 if none does."""
        return self.losses(logits, batch).sum() / (batch.targets != IGNORED).sum()

    def auxiliary(self, model: nn.Module) -> Tensor | float:
        """Return the auxiliary loss of the model's modules after a forward pass, such as that of a router."""
        return sum(getattr(module, "auxiliary", 0.0) for module in model.modules())


class Evaluation:
    """Evaluation of a model on the held-out batch, in pieces that fit in memory.

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
        """Return `val_loss` and, if there are slices, `slice_val_loss` of each, in nats; the model's mode is not changed."""
        losses = torch.cat([self._task.losses(self._task.logits(model, piece), piece) for piece in self._pieces])
        counted = self.held_out.targets != IGNORED
        masks = {f"slice_val_loss/{name}": mask & counted for name, mask in self.held_out.slices.items()}
        return {name: float(losses[mask].mean()) for name, mask in ({"val_loss": counted} | masks).items() if bool(mask.any())}
