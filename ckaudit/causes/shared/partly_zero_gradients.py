"""Gradients of which some elements are exactly zero and others are not: what is too small vanishes so, element by element."""

from typing import NamedTuple

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.run.series import Series
from ckaudit.run.tensors import table_of

MIN_ZERO_SHARE = 0.05
"""Share of a gradient's elements below which zeros are a few, such as those of single units that do not fire."""

MIN_SHARE_OF_GRADIENTS = 0.25
"""Share of the gradients that are partly zero where that is no matter of single tensors."""


class PartlyZero(NamedTuple):
    """The checkpoint with most gradients that are partly zero, how many these are, and how many are not zero as a whole."""

    step: int
    partial: int
    alive: int


def without_embeddings(zeros: Series, facts: Manifest | None) -> Series:
    """Return the shares of zeros without embeddings and experts, whose rows get no gradient where no token asks for them."""
    tensors = table_of(facts)
    return zeros.only(lambda name: tensors.kind(name) != "embedding" and not tensors.is_expert(name))


def partly_zero(zeros: Series) -> PartlyZero | None:
    """Return where many of the gradients that are not zero as a whole are so in part; None where that is at most once.

    Args:
        zeros: Share of zeros among the elements of each gradient, shape (C, P), without embeddings.
    """
    values = np.where(zeros.finite, zeros.values, np.nan)
    partial, alive = ((values > MIN_ZERO_SHARE) & (values < 1)).sum(axis=1), (values < 1).sum(axis=1)  # (C,)
    if ((partial > MIN_SHARE_OF_GRADIENTS * alive) & (partial > 1)).sum() < 2:
        return None
    row = int(np.argmax(partial))
    return PartlyZero(int(zeros.steps[row]), int(partial[row]), int(alive[row]))
