"""What causes ask of the tokens of batches: whether they have gone elsewhere for good."""

import numpy as np

from ckaudit.run.medians import median
from ckaudit.run.robust import MAD_TO_SIGMA
from ckaudit.run.series import Series

LEAST_LOOKS = 6  # at the tokens of a run, to tell whether they have changed for good


def shifted(
    drift: Series, *, times: float = 5.0, clear: float = 2.0, k: float = 5.0, min_drift: float = 0.05
) -> tuple[float, float, int] | None:
    """Return what the divergence from the first batch was, what it is to the end, and since when; None where it did not stay.

    Batches of one distribution differ by chance, by as much at any step: a shift is `times` the median of the first third of
    all, or `clear` times that and `k` of their robust deviations above it; and `min_drift` nats.
    """
    known = np.flatnonzero(drift.finite[:, 0])
    values, steps = drift.values[known, 0], drift.steps[known]
    if len(values) < LEAST_LOOKS:
        return None
    first = values[: max(3, len(values) // 3)]
    before = median(first)
    noise = MAD_TO_SIGMA * median(np.abs(first - before))
    limit = max(min_drift, min(times * before, max(clear * before, before + k * noise)))
    below = np.flatnonzero(values <= limit)
    start = int(below[-1]) + 1 if len(below) else 0
    if start > len(values) - 2 or start == 0:
        return None
    return before, median(values[start:]), int(steps[start])


def is_same(drift: Series) -> bool:
    """Tell whether the tokens are known to be of one kind to the end: looked at often enough, and not `shifted`."""
    return int(drift.finite.sum()) >= LEAST_LOOKS and shifted(drift) is None
