"""The tensor with the largest share of the gradient: two causes ask whether it or the limit is to blame for clipping."""

import math
from typing import NamedTuple

import numpy as np

from ckaudit.run.medians import median
from ckaudit.run.series import Series

MAJORITY = 0.5
"""A tensor with more than half of the squared norm has more than all others together: it decides how they are clipped."""


class LargestShare(NamedTuple):
    """The tensor with the largest median share of the squared gradient norm, and that share."""

    tensor: str
    share: float

    @property
    def is_majority(self) -> bool:
        """Whether it has more than all others together."""
        return self.share > MAJORITY


def largest_share(share: Series | None, *, after: int) -> LargestShare | None:
    """Return the tensor with the largest median share at checkpoints later than step `after`.

    In a run without such a checkpoint, those of its second half count. None where nothing finite is recorded there.
    """
    if share is None or not len(share.steps):
        return None
    late = share.steps > after
    if not late.any():
        late = 2 * share.steps > share.steps[-1]
    known = np.where(share.finite, share.values, np.nan)[late]  # (C, P)
    seen = np.flatnonzero(np.isfinite(known).any(axis=0))
    if not len(seen):
        return None
    usual = np.nanmedian(known[:, seen], axis=0)  # (P,)
    return LargestShare(share.labels[int(seen[np.argmax(usual)])], float(usual.max()))


def coefficient_without(left: Series | None, largest: LargestShare) -> float | None:
    """Return the share of the gradient that clipping would leave at the median step if the largest tensor were not there.

    None where no clip coefficient is recorded. Clipping to a norm leaves the share c of all gradients; without a tensor that
    has the share s of the squared norm, it leaves c / sqrt(1 - s) of the rest.
    """
    known = left.values[left.finite] if left is not None else np.empty(0)
    if not known.size:
        return None
    return median(known) / math.sqrt(max(1.0 - largest.share, 1e-300))
