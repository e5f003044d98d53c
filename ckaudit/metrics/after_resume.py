"""Losses around a resume: how far the first losses of a session deviate from the trend of the last ones before it."""

import numpy as np

from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.metric import metric
from ckaudit.run.medians import median
from ckaudit.run.robust import MAD_TO_SIGMA
from ckaudit.run.run import Run
from ckaudit.run.run_facts import resume_steps
from ckaudit.run.series import Floats, Series, empty, single


@metric(unit="1", reads=[train_loss_raw], source="playbook D1.6; FAULTS I31, I32, I62", memory=None)
def loss_after_resume(run: Run, *, window: int = 30, after: int = 5, min_deviation_share: float = 1e-3) -> Series:
    r"""How many robust deviations the first losses after a resume lie above the line of the losses before it.

    $$z_t = \frac{L_t - (a + b t)}{1.4826 \operatorname{median} |L_s - (a + b s)|}$$

    Shape (T, 1): the first `after` logged losses of each session that resumes according to run.json. a and b are fitted to the
    `window` losses before it, by the medians of their halves. Not recorded if there are fewer than ten losses before it.

    Args:
        run: The run.
        window: Losses before the resume.
        after: Losses after it.
        min_deviation_share: Smallest deviation, as a share of the loss: a rounded log may show no noise.
    """
    loss = train_loss_raw(run)
    if not loss.labels:
        return empty("loss_after_resume")
    steps, values = loss.finite_points()
    deviations: dict[int, float] = {}
    for seam in resume_steps(run.manifest):
        start = int(np.searchsorted(steps, seam, side="right"))
        before = values[max(0, start - window) : start]
        if len(before) >= 10:
            places = np.arange(start, min(start + after, len(values)))
            deviations |= zip(steps[places].tolist(), _above(before, values[places], min_deviation_share).tolist(), strict=True)
    after_all = sorted(deviations)
    return single("loss_after_resume", "1", np.array(after_all, np.int64), np.array([deviations[step] for step in after_all]))


def _above(before: Floats, later: Floats, min_deviation_share: float) -> Floats:
    """Return the distance of each later value above the line through the values before, in deviations, shape as `later`."""
    half = len(before) // 2
    slope = (median(before[-half:]) - median(before[:half])) / (len(before) - half)
    places = np.arange(len(before))
    base = median(before - slope * places)
    spread = MAD_TO_SIGMA * median(np.abs(before - base - slope * places))
    spread = max(spread, min_deviation_share * abs(base), 1e-300)
    return np.asarray((later - base - slope * (len(before) + np.arange(len(later)))) / spread)
