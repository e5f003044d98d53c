"""Measures of gradients for causes: whether many are partly zero, rounded to steps, summed up, or mostly of one tensor."""

import math
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from ckaudit.causes.cause import Findings
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.rules.loss.loss_oscillates import loss_oscillates
from ckaudit.rules.loss.loss_rises import loss_rises
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.run.medians import median
from ckaudit.run.series import Floats, Series
from ckaudit.run.tensors import table_of

# Gradients of which some elements are exactly zero and others are not: what is too small vanishes so, element by element.
MIN_ZERO_SHARE = 0.05
"""Share of a gradient's elements below which zeros are a few, such as those of single units that do not fire."""

MIN_SHARE_OF_GRADIENTS = 0.25
"""Share of the gradients that are partly zero from which on this is no matter of single tensors."""


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
    """Return the checkpoint at which most gradients are partly zero; None where many are so at one checkpoint at most.

    Args:
        zeros: Share of zeros among the elements of each gradient, shape (C, P), without embeddings.
    """
    values = np.where(zeros.finite, zeros.values, np.nan)
    partial, alive = ((values > MIN_ZERO_SHARE) & (values < 1)).sum(axis=1), (values < 1).sum(axis=1)  # (C,)
    if ((partial > MIN_SHARE_OF_GRADIENTS * alive) & (partial > 1)).sum() < 2:
        return None
    row = int(np.argmax(partial))
    return PartlyZero(int(zeros.steps[row]), int(partial[row]), int(alive[row]))


# Gradients whose smallest norms are those of a few equal steps: they were rounded to multiples of one number.
MOST_STEPS = 16
"""Norms of more steps are left out: the larger a number of steps, the likelier it is near a whole number by chance."""

MIN_NORMS = 3
"""How many norms besides the smallest must fit: at `TOLERANCE`, three fit by chance in one case of ten million."""

TOLERANCE = 2e-3
"""How far from a whole number a square may be, in steps: norms are recorded with five digits and more."""


def quantization_step(norm: Series | None) -> float | None:
    """Return the number of which the smallest gradients are multiples; None where there is none.

    Below its smallest normal number a format has equal steps, 2^-24 in float16. A gradient of which all elements but a few are
    rounded to zero has the norm of these: the step times the root of a whole number. So the squares of the smallest norms, at
    one checkpoint or at all of them, are whole multiples of one number, which those of other gradients never are.

    Args:
        norm: Norm of each tensor's gradient, shape (C, P).
    """
    if norm is None or not norm:
        return None
    at_each = (_quantization_step_of(row) for row in norm.values)
    return next((step for step in at_each if step is not None), None) or _quantization_step_of(norm.values)


def _quantization_step_of(norms: Floats) -> float | None:
    squares = np.unique(norms[np.isfinite(norms) & (norms > 0)]) ** 2
    if len(squares) <= MIN_NORMS or squares[0] == 0:
        return None
    for smallest in range(1, 5):  # steps that the smallest of them may have
        steps = squares[1:] / (squares[0] / smallest)
        steps = steps[steps <= MOST_STEPS]
        whole = np.unique(np.round(steps))
        is_root = np.sqrt(whole) % 1 > 0  # norms of few digits are whole multiples of one another, and no roots
        if len(whole) >= MIN_NORMS and is_root.sum() > 1 and bool((np.abs(steps - np.round(steps)) < TOLERANCE).all()):
            return float(np.sqrt(squares[0] / smallest))
    return None


# A gradient norm that adds up: each step's holds those of the steps before it.
class NormTrend(Struct, frozen=True):
    """The course of a gradient norm.

    Attributes:
        start: Median of the first points.
        peak: The largest value.
        change: Median change from one step to the next in the second half, as a share.
        rank_correlation: Rank correlation of the norm with the steps.
    """

    start: float
    peak: float
    change: float
    rank_correlation: float

    def adds_up(self, *, grown: float = 5.0, smooth: float = 0.1, steady: float = 0.9) -> bool:
        """Tell whether the norm is that of a sum that is never cleared.

        A sum of gradients differs from the sum before it by one gradient only. Once it has grown to over `grown` times its start,
        it changes by less than `smooth` from step to step, where batches alone change a norm by tens of percent, and
        rises with the steps (rank correlation over `steady`).
        """
        return self.peak >= grown * self.start and self.change < smooth and self.rank_correlation > steady


def norm_trend(norm: Series | None, *, first: int = 10) -> NormTrend | None:
    """Return the course of a global gradient norm; None where fewer than three times `first` points are known."""
    values = norm.values[norm.finite] if norm is not None else np.empty(0)
    values = values[values > 0]
    if len(values) < 3 * first:
        return None
    change = median(np.abs(np.diff(np.log(values[len(values) // 2 :]))))
    ranks = float(np.corrcoef(np.argsort(np.argsort(values)), np.arange(len(values)))[0, 1])
    return NormTrend(median(values[:first]), float(values.max()), change, ranks)


def loss_is_calm(findings: Findings, loss: Series | None) -> bool | None:
    """Tell whether the loss neither jumps, rises nor swings, as it does where updates are sums of all gradients so far.

    None where it was not recorded.
    """
    return None if loss is None else findings.first(loss_spike, loss_rises, loss_oscillates) is None


# The tensor with the largest share of the gradient: two causes ask whether it or the limit is to blame for clipping.
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


FEW_TENSORS = 2
"""Of a matrix and its bias, the matrix has the larger gradient in any run: where only a head is trained there is no third."""


def largest_share(share: Series | None, *, after: int) -> LargestShare | None:
    """Return the tensor with the largest median share at checkpoints later than step `after`.

    In a run without such a checkpoint, those of its second half count. None where nothing finite is recorded there, and where
    there are no more than `FEW_TENSORS`.
    """
    if share is None or not len(share.steps):
        return None
    late = share.steps > after
    if not late.any():
        late = 2 * share.steps > share.steps[-1]
    known = np.where(share.finite, share.values, np.nan)[late]  # (C, P)
    seen = np.flatnonzero(np.isfinite(known).any(axis=0))
    if len(seen) <= FEW_TENSORS:
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
