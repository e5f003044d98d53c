"""RESUME003: weights change more in one step than the optimizer can move them."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.manifest import Manifest
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.pairs import together
from ckaudit.metrics.weights import update_norm, weight_norm
from ckaudit.metrics.words import optimizer_adapts
from ckaudit.rules.rule import FACTS, Hit, Skip, rule, too_few
from ckaudit.run.series import Floats, Series, Steps, at
from ckaudit.run.spans import spans
from ckaudit.run.tensors import table_of


@rule("RESUME003", severity="sev0", needs=[update_norm, weight_norm], wants=[learning_rate, optimizer_adapts, FACTS], unit="1")
def weights_jump(
    moved: Series, size: Series, rate: Series | None, adapts: Series | None, facts: Manifest | None, *,
    share: float = 0.3, times: float = 10.0, reach: float = 10.0, window: int = 10, min_points: int = 4,
) -> Iterator[Hit | Skip]:  # fmt: skip
    """Weights change more in one step than the optimizer can move them.

    ## What it checks
    The change of each tensor over one step. It is no update where it is more than `share` of the tensor, and more than `times`
    what the last `window` checkpoints make of the learning rate, and of what the median tensor does in the same step (from
    `min_points` checkpoints on). In the lab's dev split weights that are overwritten give 113 times and more; healthy runs
    reach 13 once, in an update of a fiftieth of its tensor. Adam moves no element by more than (1 - beta1) / sqrt(1 - beta2)
    learning rates, 3.2 by its defaults (Kingma & Ba 2015, section 2.1): what lies within `reach` of them is its own doing.
    ## Why it matters
    Memory was corrupted, or something other than the optimizer wrote to the weights: what was learnt there is gone.
    ## False alarms
    Updates that grow everywhere are the learning rate's or the optimizer's business. A tensor that starts near zero grows by
    large shares at first, and by one element where the others get no gradient: it has no past then, or moves within reach.
    """
    yield from too_few(moved, min_points)
    moved, size = together(moved, size)
    if len(moved.steps) < min_points:
        return
    relative = moved.values / np.maximum(np.maximum(size.values, _before(size.values)), 1e-300)
    large = relative > share
    excess = _excess(moved, rate, np.flatnonzero(large.any(axis=1)), window=window, min_points=min_points)
    jumps = large & (np.nan_to_num(excess, posinf=np.inf) > times)
    if adapts is not None and rate is not None and (adapts.values[adapts.finite] == 1).any():
        jumps &= moved.values > reach * _farthest(moved, rate, facts)
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


def _farthest(moved: Series, rate: Series, facts: Manifest | None) -> Floats:
    """Return the norm of an update that moves each element by one learning rate, shape (T, P); 0 where that is not known."""
    known = table_of(facts).facts
    shapes = [known[name].shape if name in known else None for name in moved.labels]
    elements = np.array([np.prod(shape) if shape else 0 for shape in shapes], dtype=float)
    return np.asarray(np.nan_to_num(at(rate, moved.steps).values) * np.sqrt(elements))


def _rates(steps: Steps, rate: Series | None) -> Floats:
    """Return the learning rate of each step, 1 where it is not known or zero."""
    if rate is None:
        return np.ones(len(steps))
    found = at(rate, steps).values[:, 0]
    return np.where(found > 0, found, 1.0)
