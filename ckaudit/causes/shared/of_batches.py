"""What causes ask of batches: how many are repeats of those just before, and how many target tokens one had."""

import numpy as np

from ckaudit.run.medians import median
from ckaudit.run.series import Series


def repeats(distance: Series, loss: Series, first: int, last: int | None, *, near: int = 10) -> float:
    """Return the share of the steps of a stretch whose batch is one of the last `near`, between 0 and 1.

    Args:
        distance: How many steps ago each repeated batch was seen; steps without a repeat are not in it.
        loss: Tells which steps there were.
        first: Where the stretch begins.
        last: Where it ends; None: at the end.
        near: A repeat from further back is another matter: an epoch, or a loader that began anew.
    """
    end = last if last is not None else int(loss.steps[-1])
    steps = loss.steps[(loss.steps >= first) & (loss.steps <= end)]
    again = distance.steps[(distance.values <= near).any(axis=1)]
    return float(np.isin(steps, again).mean()) if len(steps) else 0.0


def target_tokens(tokens: Series, step: int) -> tuple[float, float] | None:
    """Return the target tokens of the batch of a step and the median of those before it; None where the count is not known."""
    known = tokens.finite[:, 0] & (tokens.steps <= step)
    counts, steps = np.diff(tokens.values[known, 0]), tokens.steps[known][1:]
    if len(steps) < 2 or steps[-1] != step:
        return None
    return float(counts[-1]), median(counts[:-1])
