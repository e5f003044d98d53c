"""How often gradients are clipped."""

import numpy as np

from ckaudit.diff.noise import quantile
from ckaudit.diff.questions.question import PairAnswer, lower_is_better, missing, question
from ckaudit.diff.run_pair import Both
from ckaudit.metrics.optimizer import clip_coefficient


@question(place=9, weighs="stability")
def clip_rate(both: Both, *, share: float = 0.001, seed: float = 0.1, min_steps: int = 20) -> PairAnswer:
    """How often are gradients clipped?

    The share of the common steps. Fewer is not better by itself, so that this alone decides nothing. Its
    noise is that of stretches of `min_steps` steps, and what another seed does to it.

    Args:
        both: The runs.
        share: Of replicas that differ more.
        seed: Standard deviation of the share among seeds: see docs/diff-calibration.md.
        min_steps: Steps of a stretch.
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
