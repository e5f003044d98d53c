"""WGT001: weight norms decay everywhere."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.loss import learnt_since, train_loss_raw
from ckaudit.metrics.movement import decayed_share, decays_nothing
from ckaudit.metrics.reductions import row_medians
from ckaudit.metrics.weights import weight_norm, weight_rms
from ckaudit.rules.rule import FACTS, Hit, Skip, needs_one_of, rule, too_few
from ckaudit.run.series import Floats, Series, Steps, single
from ckaudit.run.spans import spans
from ckaudit.run.tensors import table_of

MIN_DECAYED_SHARE = 0.6
"""Least share of a weight that a decay leaves in one update: what takes 40 % off is clamping, projecting or loading weights."""


@rule("WGT001", severity="sev2", needs=[], wants=[weight_norm, weight_rms, train_loss_raw, decayed_share, FACTS], unit="1")
def weights_shrink(
    norm: Series | None,
    rms: Series | None,
    loss: Series | None,
    decayed: Series | None,
    facts: Manifest | None,
    *,
    min_norm_share: float = 0.7,
    min_points: int = 2,
    min_falls: int = 3,
    max_learnt_share: float = 0.1,
) -> Iterator[Hit | Skip]:
    """Weight norms decay steadily everywhere.

    ## What it checks
    The norm of each trainable tensor over its largest so far, as the median over the tensors; where no norm is recorded, the root
    mean square of their elements. The weights decay where all of these hold:

    - The median share is below `min_norm_share` at `min_points` checkpoints in a row (lab: the median tensor of a healthy run has
      at least 0.94 of its largest norm; under too much weight decay it comes to 0.05).
    - The median share fell `min_falls` times in a row before.
    - The median tensor is smaller than at the start.
    ## Why it matters
    Weight decay, or something that acts like it, outweighs what is learnt: the model forgets (M11).
    ## False alarms
    Some weights shrink and are well:

    - Single tensors shrink in healthy runs; the median tensor does not.
    - Weights that had run away may come back.
    - A jump to smaller weights is not a decay, nor is a loss of 40 % in one update, as by clamping.
    - Weights that began too large for the task, as embeddings of deviation 1, get smaller because that is learnt: it is a note
      where more than `max_learnt_share` of the loss has gone since (wild draws: under too much decay at most 2 % goes).
    - It is a note as well where the optimizer is seen to decay nothing.
    """
    size = norm if norm is not None else rms
    if size is None:
        yield needs_one_of(weight_norm, weight_rms)
        return
    yield from too_few(size, min_falls + 1)
    trainable = size.only(table_of(facts).is_trainable).recorded_rows()
    if not trainable:
        return
    values = np.where(trainable.finite, trainable.values, np.nan)
    steps, values = _since_set(trainable.steps, values)
    largest = np.fmax.accumulate(values, axis=0)
    with np.errstate(all="ignore"):
        ratio = np.where(largest > 0, values / largest, np.nan)
        since = values / values[np.isfinite(values).argmax(axis=0), np.arange(values.shape[1])]
    middle = row_medians(ratio)
    share = single("median tensor", "1", steps, middle)
    down = np.diff(middle, prepend=np.inf) < 0
    steady = np.convolve(down, np.ones(min_falls), mode="full")[: len(down)] >= min_falls
    low = (middle < min_norm_share) & (row_medians(since) < 1)
    began = np.logical_or.accumulate(steady & low)
    for span in spans(share, (low & began)[:, None], min_points=min_points):
        is_learnt = loss is not None and learnt_since(loss, span.first, around=3) > max_learnt_share
        yield Hit.over(
            span,
            "note" if is_learnt or decays_nothing(decayed) else "sev2",
            "the median tensor has {value:.0%} of the largest norm that it had; below {limit:.0%} weights decay "
            "faster than they learn",
            badness=-share.values,
            value=share.values,
            limit=min_norm_share,
        )


def _since_set(steps: Steps, values: Floats) -> tuple[Steps, Floats]:
    """Return steps and norms from the last checkpoint on at which the median tensor had lost 40 % in each update.

    Weights are set at a single checkpoint: a decay that has this pace at the checkpoint before or after too is of another kind.
    """
    with np.errstate(all="ignore"):
        kept = row_medians(values[1:] / values[:-1]) ** (1 / np.diff(steps))
    low = np.concatenate([[False], kept < MIN_DECAYED_SHARE, [True]])
    rows = np.flatnonzero(low[1:-1] & ~low[:-2] & ~low[2:]) + 1
    first = int(rows[-1]) if len(rows) else 0
    return steps[first:], values[first:]
