"""Divergence: since when the held-out loss leaves the training loss behind."""

from dataclasses import replace

import numpy as np

from ckaudit.metrics.loss import train_level, val_loss
from ckaudit.metrics.metric import metric
from ckaudit.metrics.spikes import SIGMA
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Series, Steps


@metric(unit="1", reads=[val_loss], source="F12; Prechelt 1998, generalization loss")
def val_rise(run: Run) -> Series:
    r"""How far the held-out loss stands above its best so far.

    $$r_t = \frac{L_{val}(t) - \min_{s \le t} L_{val}(s)}{|\min_{s \le t} L_{val}(s)|}$$

    Shape (E, V): evaluations by held-out sets; 0 at each new best. Not recorded where the best is 0; NaN where the
    evaluation is not finite.
    """
    evals = val_loss(run)
    best = np.minimum.accumulate(np.where(evals.finite, evals.values, np.inf), axis=0)
    recorded = evals.recorded & (best != 0)
    with np.errstate(all="ignore"):
        values = np.where(evals.finite & recorded, (evals.values - best) / np.abs(best), np.nan)
    return replace(evals, values=values, recorded=recorded)


def divergence_step(
    steps: Steps, train: Floats, val: Floats, *, min_evals: int = 3, rise: float = 0.01, mads: float = 3.0
) -> int | None:
    r"""Return the step since which the held-out loss departs from the training loss for good, None where it does not.

    It does where at least `min_evals` evaluations follow the best one, their latest `min_evals` stand above it by
    more than both `rise` of it and `mads` robust deviations of the evaluations, and the training loss is no higher
    than it was at the best. The step is then where the gap's last sustained widening began:

    $$t^* = \arg\min_{t > b} g(t), \qquad b = \max\{ t : g(t) - \min_{s > t} g(s) > \epsilon \}$$

    with the gap g = L_val - L_train, and the same deviations of the gap as the tolerance epsilon. Without noise this
    is F12's own start of the evaluations over which g only rises.

    Args:
        steps: Steps of the evaluations, shape (E,).
        train: Training loss at each of them (see train_level), shape (E,).
        val: Held-out loss, shape (E,); evaluations where either is not finite are left out.
        min_evals: Evaluations that must follow the best (F12 leaves it open; fewer are noise).
        rise: Least rise over the best; healthy runs end 0.08 to 0.33 % above theirs.
        mads: Least rise in robust standard deviations around the local median.
    """
    known = np.isfinite(train) & np.isfinite(val)
    steps, train, val = steps[known], train[known], val[known]
    if len(val) <= min_evals:
        return None
    best = int(np.argmin(val))
    if len(val) - 1 - best < min_evals:
        return None
    late = slice(len(val) - min_evals, None)
    limit = max(rise * abs(val[best]), mads * noise(val))
    if np.median(val[late]) - val[best] <= limit or np.median(train[late]) > train[best] + rise * abs(train[best]):
        return None
    return int(steps[_widening(val - train, mads * noise(val - train))])


def overfit_since(run: Run) -> dict[str, int]:
    """Return the divergence step of each held-out set that departs from the training loss."""
    evals = val_loss(run)
    level = train_level(run, evals.steps)
    found = {label: divergence_step(evals.steps, level, evals.values[:, i]) for i, label in enumerate(evals.labels)}
    return {label: step for label, step in found.items() if step is not None}


def noise(values: Floats) -> float:
    """Return the robust standard deviation of evaluations around the median of themselves and both neighbours.

    A smooth curve has none, however steep. A point is one of its own three, so this is a lower estimate.

    >>> noise(np.array([4.0, 3.0, 2.5, 2.4, 2.6, 3.0]))
    0.0
    """
    if len(values) < 3:
        return 0.0
    middle = np.median(np.lib.stride_tricks.sliding_window_view(values, 3), axis=1)
    return SIGMA * float(np.median(np.abs(values[1:-1] - middle)))


def _widening(gap: Floats, tolerance: float) -> int:
    """Return the row where the last widening of a gap began that no fall beyond `tolerance` interrupts."""
    lowest_later = np.append(np.minimum.accumulate(gap[::-1])[::-1][1:], np.inf)
    falls = np.flatnonzero(gap - lowest_later > tolerance)
    start = int(falls[-1]) + 1 if len(falls) else 0
    rest = gap[start:]
    return start + int(np.flatnonzero(rest == rest.min())[-1])
