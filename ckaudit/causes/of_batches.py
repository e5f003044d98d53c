"""What causes ask of the hashes of batches: how many are repeats of those just before."""

import numpy as np

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
