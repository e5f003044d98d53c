"""EVL002: one slice of the held-out data gets worse while the whole does not."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.loss import slice_val_loss, val_loss
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.series import Floats, Series, at
from ckaudit.run.spans import spans


@rule("EVL002", severity="sev2", needs=[slice_val_loss, val_loss], unit="1")
def slice_regression(
    slices: Series, val: Series, *, rise: float = 0.1, mads: float = 2.0, whole: float = 0.02, min_evals: int = 3
) -> Iterator[Hit | Skip]:
    """One slice of the held-out data gets worse while the whole does not.

    ## What it checks
    Each slice's loss over its best so far: more than `rise`, and more than `mads` robust deviations of its steps from one
    evaluation to the next, at `min_evals` evaluations in a row (M56, SEV2-2), while the whole held-out loss is within
    `whole` of its best: else the whole is ill, and other rules say so.
    ## Why it matters
    The average hides it: a language, a source or a task is being forgotten (SR-2).
    ## False alarms
    Small slices are noisy, and their own noise is the measure.
    """
    yield from too_few(slices, min_evals + 2)
    excess = _over_best(slices.values, slices.finite)
    best = _over_best(at(val, slices.steps).values, np.isfinite(at(val, slices.steps).values))[:, :1]
    steps = np.abs(np.diff(np.where(slices.finite, slices.values, np.nan), axis=0))
    known = np.isfinite(steps).any(axis=0)
    noise = np.full(len(slices.labels), np.inf)
    noise[known] = 1.4826 * np.nanmedian(steps[:, known], axis=0)
    with np.errstate(all="ignore"):
        limit = np.maximum(rise, mads * noise / np.abs(slices.values))
    for span in spans(slices, (excess > limit) & (best < whole), min_points=min_evals):
        yield Hit.over(
            span, "sev2", "the loss of slice {where} is {value:.0%} above its best, while that of all held-out data is not",
            badness=excess, limit=rise,
        )  # fmt: skip


def _over_best(values: Floats, finite: "np.ndarray") -> Floats:
    """Return each cell over the lowest of its column so far, less 1; NaN where it is not finite."""
    lowest = np.minimum.accumulate(np.where(finite, values, np.inf), axis=0)
    with np.errstate(all="ignore"):
        return np.asarray(np.where(finite & (lowest > 0), values / lowest - 1, np.nan))
