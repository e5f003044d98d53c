"""Random numbers for a change, apart from those of the training."""

import torch
from torch import Generator, Tensor

from ckaudit.lab.training import Training


def chance(training: Training) -> Generator:
    """Return a generator for the step under way: seeded by it, so that torch's own is left alone."""
    return torch.Generator().manual_seed(training.plan.seed * 1_000_000 + training.step)


def swapped(values: Tensor, training: Training, *, share: float) -> Tensor:
    """Return the tokens or classes with a share of them, drawn at random, replaced by any of the vocabulary."""
    dice = chance(training)
    chosen = torch.rand(values.shape, generator=dice) < share
    drawn = torch.randint(training.corpus.vocabulary, values.shape, generator=dice)
    return torch.where(chosen, drawn, values)
