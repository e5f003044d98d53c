"""How two levels of a loss are told apart, and the sentence on it."""

import numpy as np

from ckaudit.diff.noise import Stretches, quantile
from ckaudit.diff.questions.question import PairAnswer, lower_is_better
from ckaudit.diff.run_pair import SURE, Both, level
from ckaudit.metrics import Metric


def judged(stretches: Stretches, what: str, *, share: float = SURE, unit: str = "nats/token") -> PairAnswer:
    """Return the word for the last level of a loss, with a sentence that begins with `what`."""
    left, right, band = level(stretches, share=share)
    word = lower_is_better(left, right, band)
    how = {"same": "equal", "within_noise": "within noise", "worse": "higher", "better": "lower"}[word]
    since = _since(stretches, share) if word in ("worse", "better") else ""
    sentence = f"{what}: {left:.4g} and {right:.4g}, {how}{since}; noise explains {band:.2g}"
    return PairAnswer(word=word, sentence=sentence, left=left, right=right, band=band, unit=unit)


def _since(stretches: Stretches, share: float) -> str:
    """Say since which step the level has been on this side of its band; nothing where that began before the first stretch."""
    side = stretches.excess * np.sign(stretches.excess[-1])
    inside = np.flatnonzero(side <= quantile(share, stretches.freedom))
    row = int(inside[-1]) + 1 if len(inside) else 0
    return f" since step {int(stretches.first[row])}" if 0 < row < len(side) - 1 else ""


def broken(both: Both, metric: Metric, unit: str = "nats/token") -> PairAnswer | None:
    """Return the answer where the last value that both recorded is no number in one of them, else None.

    Levels are of finite values; without this a loss that ended as NaN would be judged by what it was before.
    """
    paired = both.paired(metric)
    rows = np.flatnonzero(paired.recorded[:, :1])
    if not len(rows):
        return None
    left, right = float(paired.left[rows[-1], 0]), float(paired.right[rows[-1], 0])
    if np.isfinite(left) == np.isfinite(right):
        return None
    which = "first" if np.isfinite(right) else "second"
    sentence = f"{metric.name} at step {int(paired.steps[rows[-1]])} is no number in the {which}"
    return PairAnswer(word="better" if which == "first" else "worse", sentence=sentence, left=left, right=right, unit=unit)
