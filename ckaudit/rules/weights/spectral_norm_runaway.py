"""WGT005: the spectral norm of a matrix runs away."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.weights import spectral_norm
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.series import Floats, Series, Steps
from ckaudit.run.spans import spans


@rule("WGT005", severity="sev2", needs=[spectral_norm], unit="1")
def spectral_norm_runaway(
    norm: Series, *, max_ratio: float = 10.0, within_steps: int = 500, min_norm: float = 10.0
) -> Iterator[Hit | Skip]:
    """The spectral norm of a matrix grows ten times over within some hundred steps.

    ## What it checks
    The spectral norm of each recorded matrix against its lowest of the last `within_steps` steps, or of the checkpoint before
    where checkpoints lie further apart. The norm runs away where it is at least `max_ratio` times as large and above `min_norm`
    (DR-2: from 1.2 to 14 by step 500 is of high concern).
    ## Why it matters
    Attention logits scale with the product of two such norms: softmax saturates soon after. Look at the entropy of the same layer
    and at its largest logit.
    ## False alarms
    A matrix that begins at zero or far below its usual scale grows many times over without harm: it must also stretch some vector
    more than `min_norm` times. In long runs norms grow tenfold over tens of thousands of steps.
    """
    yield from too_few(norm, 2)
    ratio = _over_recent(norm.steps, np.where(norm.finite & (norm.values > 0), norm.values, np.nan), within_steps)
    for span in spans(norm, (np.nan_to_num(ratio) >= max_ratio) & (norm.values > min_norm)):
        yield Hit.over(
            span,
            "sev2",
            "the spectral norm of {where} has come to {value:.3g}, more than {limit:.0f} times what it was shortly before",
            badness=ratio,
            value=norm.values,
            limit=max_ratio,
        )


def _over_recent(steps: Steps, values: Floats, within: int) -> Floats:
    """Return each value over the lowest of the steps just before it, shape (T, P); NaN where there is none."""
    ratios = np.full(values.shape, np.nan)
    for row in range(1, len(steps)):
        start = min(int(np.searchsorted(steps, steps[row] - within)), row - 1)
        recent = values[start:row]
        lowest = np.where(np.isfinite(recent), recent, np.inf).min(axis=0)
        ratios[row] = np.where(np.isfinite(lowest), values[row] / lowest, np.nan)
    return ratios
