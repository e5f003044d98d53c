"""Points of a table: each class is a few clouds among those of other classes, so that no plane tells them apart."""

from functools import cache

import torch
from torch import Generator, Tensor

from ckaudit.lab.corpora.classes import ClassCorpus, seeded
from ckaudit.lab.plan import Data

FEATURES = 8
CLASSES = 6
CLOUDS = 8  # of each class


@cache
def centres() -> Tensor:
    """Return the middle of each cloud, (classes, clouds, features)."""
    return torch.randn(CLASSES, CLOUDS, FEATURES, generator=seeded("points"))


def point(label: int, generator: Generator, *, spread: float = 0.4) -> Tensor:
    """Draw a point around one of the class's centres, (features,); a feature has about unit variance."""
    cloud = int(torch.randint(CLOUDS, (), generator=generator))
    noise = torch.randn(FEATURES, generator=generator)
    return (centres()[label, cloud] + spread * noise) / (1 + spread**2) ** 0.5


def points(plan: Data, seed: int) -> ClassCorpus:
    """Return the corpus."""
    return ClassCorpus(plan, seed, classes=CLASSES, make=point)
