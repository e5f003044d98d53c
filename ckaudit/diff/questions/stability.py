"""Loss spikes beyond the noise, and the rate of clipped gradients."""

from math import comb

import numpy as np

from ckaudit.diff.noise import quantile
from ckaudit.diff.questions import PairAnswer, lower_is_better, missing, question
from ckaudit.diff.run_pair import RunPair, RunSide
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.optimizer import clip_coefficient
from ckaudit.metrics.spikes import flagged, loss_excess, loss_over_median
from ckaudit.run.spikes import incidents
from ckaudit.wording import plural


@question(place=8, weighs="stability")
def stability(both: RunPair, *, share: float = 0.05, jump: float = 1.5, quiet: int = 25) -> PairAnswer:
    """How often does the loss spike?

    The answer counts incidents, as the rule LOSS001 groups them, and losses that are not finite. The larger of two counts is more
    than chance if a fair coin would separate them as much in less than `share` of all cases.

    Args:
        both: The runs.
        share: Share of cases.
        jump: Multiple of the median from which on a flag is an incident by itself (LOSS001).
        quiet: Points without a flag that end an incident (LOSS001).
    """
    broken = [int(train_loss_raw(side.run).nonfinite.sum()) for side in (both.left, both.right)]
    if bool(broken[0]) != bool(broken[1]):
        return PairAnswer(
            word="worse" if broken[1] else "better",
            left=broken[0],
            right=broken[1],
            band=0.0,
            unit="losses",
            sentence=f"losses that are no number: {broken[0]} in the first, {broken[1]} in the second",
        )
    left, right = (_spikes(side, jump, quiet) for side in (both.left, both.right))
    if left is None or right is None:
        return missing(both, "loss_excess")
    band = _by_chance(left + right, share)
    return PairAnswer(
        word=lower_is_better(left, right, band),
        left=left,
        right=right,
        band=band,
        unit="spikes",
        sentence=f"{plural(left, 'spike')} of the loss in the first, {right} in the second; chance explains {band} more",
    )


def _by_chance(total: int, share: float) -> int:
    """Return the largest difference between heads and tails of `total` throws in all but `share` of cases, at most `total`.

    >>> _by_chance(5, 0.1), _by_chance(5, 0.05), _by_chance(20, 0.05)
    (3, 5, 8)
    """
    tail = 0.0
    for few in range(total // 2 + 1):
        tail += 2 * comb(total, few) / 2**total
        if tail > share:
            return total - 2 * few
    return 0


def _spikes(side: RunSide, jump: float, quiet: int) -> int | None:
    excess, relative = loss_excess(side.run), loss_over_median(side.run)
    if not excess:
        return None
    flags = flagged(excess)[:, 0]
    strong = flags & (np.nan_to_num(relative.values[:, 0], posinf=np.inf) > jump)
    return sum(incident.is_incident for incident in incidents(flags, strong, quiet=quiet))


@question(place=9, weighs="stability")
def clip_rate(both: RunPair, *, share: float = 0.001, seed: float = 0.1, min_steps: int = 20) -> PairAnswer:
    """How often are gradients clipped?

    This is the share of the common steps. Less is not better by itself, so this alone decides nothing. Its noise is that of
    segments of `min_steps` steps, and the effect of another seed.

    Args:
        both: The runs.
        share: Share of replicas that differ by more than the band.
        seed: Standard deviation of the share among seeds: see docs/diff-calibration.md.
        min_steps: Steps of a segment.
    """
    paired = both.paired(clip_coefficient)
    if len(paired.labels) != 1 or paired.finite.sum() < min_steps:
        return missing(both, "clip_coefficient")
    known = paired.finite[:, 0]
    clipped = [(values[known, 0] < 1).astype(float) for values in (paired.left, paired.right)]
    left, right = (float(column.mean()) for column in clipped)
    parts = max(1, int(known.sum()) // min_steps)
    apart = np.array([part.mean() for part in np.array_split(clipped[1] - clipped[0], parts)])
    mixed = max(left * (1 - left), right * (1 - right))
    band = quantile(share) * float(np.sqrt(apart.var() / parts + 8 * seed**2 * mixed))
    word = lower_is_better(left, right, band)
    sentence = f"{left:.1%} and {right:.1%} of the updates are clipped; noise explains {band:.1%}"
    return PairAnswer(word=word, sentence=sentence, left=left, right=right, band=band, grave=False)
