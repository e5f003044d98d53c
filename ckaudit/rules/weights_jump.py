"""RESUME003: weights change more in one step than the optimizer can move them."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.pairs import together
from ckaudit.metrics.weights import update_norm, weight_norm
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.series import Floats, Series, Steps, at
from ckaudit.run.spans import spans


@rule("RESUME003", severity="sev0", needs=[update_norm, weight_norm], wants=[learning_rate], unit="1")
def weights_jump(
    moved: Series,
    size: Series,
    rate: Series | None,
    *,
    share: float = 0.3,
    times: float = 10.0,
    window: int = 10,
    min_points: int = 4,
) -> Iterator[Hit | Skip]:
    """Weights change more in one step than the optimizer can move them.

    ## What it checks
    The change of each tensor over one step. It is no update where it is more than `share` of the tensor, and more than `times`
    what the last `window` checkpoints make of the learning rate, and of what the median tensor does in the same step (from
    `min_points` checkpoints on). In the lab's dev split weights that are overwritten give 113 times and more; healthy runs
    reach 13 once, in an update of a fiftieth of its tensor.
    ## Why it matters
    Memory was corrupted, or something other than the optimizer wrote to the weights: what was learnt there is gone.
    ## False alarms
    Updates that grow everywhere are the learning rate's or the optimizer's business. A tensor that starts near zero grows by
    large shares at first: it has no past then.
    """
    yield from too_few(moved, min_points)
    moved, size = together(moved, size)
    if len(moved.steps) < min_points:
        return
    relative = moved.values / np.maximum(np.maximum(size.values, _before(size.values)), 1e-300)
    large = relative > share
    excess = _excess(moved, rate, np.flatnonzero(large.any(axis=1)), window=window, min_points=min_points)
    jumps = large & (np.nan_to_num(excess, posinf=np.inf) > times)
    for span in spans(moved, jumps):
        yield Hit.over(
            span, "sev0", "{where} changes by {value:.2g} of its size in one step: no update of the optimizer can be so large",
            badness=relative, limit=share,
        )  # fmt: skip


def _before(values: Floats) -> Floats:
    """Return the row before each, the first one itself."""
    return np.concatenate([values[:1], values[:-1]])


def _excess(moved: Series, rate: Series | None, rows: Steps, *, window: int, min_points: int) -> Floats:
    """Return how far each tensor's update exceeds its own past, over what the median tensor's does, shape (T, P).

    It is looked for in some rows only; NaN in all others, and in those with too short a past.
    """
    per_rate = moved.values / _rates(moved.steps, rate)[:, None]
    excess = np.full(per_rate.shape, np.nan)
    with np.errstate(all="ignore"):
        for row in rows[rows >= min_points - 1]:
            past = per_rate[max(0, row - window) : row]
            known = np.isfinite(past).any(axis=0) & np.isfinite(per_rate[row])
            own = per_rate[row, known] / np.maximum(np.nanmedian(past[:, known], axis=0), 1e-300)
            if len(own):
                excess[row, known] = own / max(float(np.median(own)), 1.0)
    return excess


def _rates(steps: Steps, rate: Series | None) -> Floats:
    """Return the learning rate of each step, 1 where it is not known or zero."""
    if rate is None:
        return np.ones(len(steps))
    found = at(rate, steps).values[:, 0]
    return np.where(found > 0, found, 1.0)
