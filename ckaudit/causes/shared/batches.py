"""Measures of batches for causes: repeated batches, target tokens of one batch, and a lasting change of the tokens."""

import numpy as np

from ckaudit.run.medians import median
from ckaudit.run.robust import MAD_TO_SIGMA
from ckaudit.run.series import Series

MIN_MEASUREMENTS = 6  # measurements of the token drift; fewer do not tell whether the tokens have changed for good


def repeated_share(distance: Series, loss: Series, first: int, last: int | None, *, near: int = 10) -> float:
    """Return the share of the steps of a stretch whose batch is one of the last `near`, between 0 and 1.

    Args:
        distance: How many steps ago each repeated batch was seen; steps without a repeat are not in it.
        loss: Tells which steps there were.
        first: Where the stretch begins.
        last: Where it ends; None: at the end.
        near: A repeat from further back does not count: it is an epoch, or a loader that began anew.
    """
    end = last if last is not None else int(loss.steps[-1])
    steps = loss.steps[(loss.steps >= first) & (loss.steps <= end)]
    again = distance.steps[(distance.values <= near).any(axis=1)]
    return float(np.isin(steps, again).mean()) if len(steps) else 0.0


def target_tokens(tokens: Series, step: int) -> tuple[float, float] | None:
    """Return the target tokens of a step's batch and the median of the batches before it; None where the count is not known."""
    known = tokens.finite[:, 0] & (tokens.steps <= step)
    counts, steps = np.diff(tokens.values[known, 0]), tokens.steps[known][1:]
    if len(steps) < 2 or steps[-1] != step:
        return None
    return float(counts[-1]), median(counts[:-1])


def token_shift(
    drift: Series, *, times: float = 5.0, clear: float = 2.0, k: float = 5.0, min_drift: float = 0.05
) -> tuple[float, float, int] | None:
    """Return the divergence from the first batch before and after a lasting shift, and the first step after it; None: no shift.

    Batches of one distribution differ by chance, by as much at any step. A shift is at least `min_drift` nats, and `times` the
    median of the first third of all, or `clear` times that median and `k` robust deviations above it.
    """
    known = np.flatnonzero(drift.finite[:, 0])
    values, steps = drift.values[known, 0], drift.steps[known]
    if len(values) < MIN_MEASUREMENTS:
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


def has_no_token_shift(drift: Series) -> bool:
    """Tell whether the tokens are known to stay of one kind: measured often enough, and not `token_shift`."""
    return int(drift.finite.sum()) >= MIN_MEASUREMENTS and token_shift(drift) is None
