"""Batches that a change alters: tokens drawn anew by chance, rows read from their end."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from ckaudit.lab.task import Batch
    from ckaudit.lab.training import Training


def swapped(values: "Tensor", training: "Training", *, share: float) -> "Tensor":
    """Return the tokens or classes with a share of them, drawn at random, replaced by any of the vocabulary."""
    import torch

    dice = chance(training)
    chosen = torch.rand(values.shape, generator=dice) < share
    drawn = torch.randint(training.corpus.vocabulary, values.shape, generator=dice)
    return torch.where(chosen, drawn, values)


def chance(training: "Training") -> "Generator":
    """Return a generator for the step under way: seeded by it, so that torch's own is left alone."""
    import torch

    return torch.Generator().manual_seed(training.plan.seed * 1_000_000 + training.step)


def backwards(batch: "Batch", rows: int) -> "Batch":
    """Return the batch with its first `rows` rows read from their end: a second language, of the same letters."""
    import torch

    whole = torch.cat((batch.inputs[:, :1], batch.targets), dim=1)  # (B, T + 1)
    whole[:rows] = whole[:rows].flip(1)
    return replace(batch, inputs=whole[:, :-1].contiguous(), targets=whole[:, 1:].contiguous())
