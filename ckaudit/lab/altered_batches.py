"""Altered batches: tokens replaced at random, rows reversed."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from ckaudit.lab.task import Batch
    from ckaudit.lab.training import Training


def swapped(values: "Tensor", training: "Training", *, share: float) -> "Tensor":
    """Return the tokens or classes with a random share of them replaced by random ones of the vocabulary."""
    import torch

    dice = chance(training)
    chosen = torch.rand(values.shape, generator=dice) < share
    drawn = torch.randint(training.corpus.vocabulary, values.shape, generator=dice)
    return torch.where(chosen, drawn, values)


def chance(training: "Training") -> "Generator":
    """Return a generator for the current step, seeded by it, so that torch's own generator is not used."""
    import torch

    return torch.Generator().manual_seed(training.plan.seed * 1_000_000 + training.step)


def backwards(batch: "Batch", rows: int) -> "Batch":
    """Return the batch with its first `rows` rows reversed: a second language with the same letters."""
    import torch

    whole = torch.cat((batch.inputs[:, :1], batch.targets), dim=1)  # (B, T + 1)
    whole[:rows] = whole[:rows].flip(1)
    return replace(batch, inputs=whole[:, :-1].contiguous(), targets=whole[:, 1:].contiguous())
