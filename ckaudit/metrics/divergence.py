"""Divergence: the step since which the held-out loss departs from the training loss."""

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.loss import val_loss
from ckaudit.metrics.metric import metric
from ckaudit.run.medians import median
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Series, Steps


@metric(unit="1", reads=[val_loss], source="F12; Prechelt 1998, generalization loss")
def val_rise(run: Run) -> Series:
    r"""How far the held-out loss is above its best so far.

    $$r_t = \frac{L_{val}(t) - \min_{s \le t} L_{val}(s)}{|\min_{s \le t} L_{val}(s)|}$$

    Shape (E, V): evaluations by held-out sets; 0 at each new best. Not recorded if the best is 0; NaN if the evaluation is not
    finite.
    """
    evals = val_loss(run)
    best = np.minimum.accumulate(np.where(evals.finite, evals.values, np.inf), axis=0)
    recorded = evals.recorded & (best != 0)
    with np.errstate(all="ignore"):
        values = np.where(evals.finite & recorded, (evals.values - best) / np.abs(best), np.nan)
    return replace(evals, values=values, recorded=recorded)


HUGE = 1e160
"""Losses above this are scaled down to avoid overflow of differences; that changes no comparison."""


def divergence_step(
    steps: Steps,
    train: Floats,
    val: Floats,
    *,
    min_evals: int = 3,
    share: float = 0.125,
    rise: float = 0.01,
    mads: float = 3.0,
    train_share: float = 0.1,
    given_back: float = 0.5,
) -> int | None:
    r"""Return the step since which the held-out loss departs from the training loss for good; None if it does not.

    It departs if all of these hold. At least `min_evals` evaluations follow the best one. The median of the last `min_evals`
    exceeds that of the first `min_evals` from the best on, by more than `rise` and by more than `mads` robust deviations of
    evaluations from their valley. The training loss did not rise along. The rise is not a single jump after which the held-out
    loss falls again, as after a change of the evaluation itself. The step is the start of the last sustained widening of the gap:

    $$t^* = \max\{ t : g(t) \le \min_{s > b} g(s) + \delta \}, \qquad b = \max\{ t : g(t) - \min_{s > t} g(s) > \epsilon \}$$

    over the evaluations from the best one on, with the gap g = L_val - L_train and its noise delta. Without noise and falls, that
    is F12 from there: the first of the evaluations over which the gap only widens. Before the best one the gap may widen too, but
    the held-out loss still improves.

    Args:
        steps: Steps of the evaluations, shape (E,).
        train: Training loss at each of them (see train_level), shape (E,).
        val: Held-out loss, shape (E,); evaluations at which either is not finite are left out.
        min_evals: Evaluations that must follow the best (F12 leaves the number open; fewer are noise), and over which medians are
            taken.
        share: Smallest share of all evaluations that these are: the lowest of many noisy evaluations is chance (lab: the lowest
            of 40, 12 % below those around it, came fifth to last, and the last three stood 12 % above).
        rise: Smallest rise over the best; healthy public runs end 0.08 to 0.33 % above theirs.
        mads: Smallest rise in robust deviations (see noise). At 3, a flat run counts as rising in at most 3 % of cases if its
            evaluations scatter by 0.5 %; if they scatter by 3 %, in 16 % of cases with 8 evaluations, 10 % with 15, 3 % with 40
            (2,000 cases each).
        train_share: The training loss may rise by this share of the held-out rise, because it is noisy itself.
        given_back: A fall of the gap ends a widening if it takes back this share of the whole widening, and more than the noise
            of the gap, which is `mads` robust deviations: epsilon.
    """
    known = np.isfinite(train) & np.isfinite(val)
    steps, train, val = steps[known], train[known], val[known]
    if max(np.abs(train).max(initial=0.0), np.abs(val).max(initial=0.0)) > HUGE:
        train, val = train / HUGE, val / HUGE
    best, min_evals = int(np.argmin(val)) if len(val) else 0, max(min_evals, int(share * len(val)))
    if len(val) - 1 - best < min_evals:
        return None
    if _is_one_jump(val[best:], min_evals):
        return None
    level = median(val[best : best + min_evals])
    risen = median(val[-min_evals:]) - level
    train_risen = float(median(train[-min_evals:]) - train[best])
    if risen <= max(rise * abs(level), mads * noise(val)) or train_risen > train_share * risen:
        return None
    gap = (val - train)[best:]
    widened = float(median(gap[-min_evals:]) - gap[0])
    return int(steps[best + _widening(gap, mads * noise(gap), given_back * widened)])


def _is_one_jump(val: Floats, min_points: int) -> bool:
    """Tell whether a held-out loss rose by half of its whole rise in one jump and has fallen since."""
    rises = np.diff(val)
    jump = int(np.argmax(rises))
    after = val[jump + 1 :]
    return bool(
        rises[jump] >= (val.max() - val[0]) / 2
        and len(after) > min_points
        and median(after[-min_points:]) < median(after[:min_points])
    )


def _widening(gap: Floats, blur: float, fall: float) -> int:
    """Return the last row at which a gap was no wider than its lowest since its last fall, within `blur`."""
    lowest_later = np.append(np.minimum.accumulate(gap[::-1])[::-1][1:], np.inf)
    falls = np.flatnonzero(gap - lowest_later > max(blur, fall))
    rest = gap[int(falls[-1]) + 1 if len(falls) else 0 :]
    return int(np.flatnonzero(gap <= rest.min() + blur)[-1])


# The valley of noisy points: it falls to the lowest one and rises from there, close to most points.
def noise(values: Floats) -> float:
    r"""Return the robust standard deviation of points from their valley, 0 for points that form a valley.

    $$\sigma = Q_{0.75}(|L_t - v_t|) / 1.1503$$

    The third quartile replaces the median of the MAD, because a valley passes through many of its points and few evaluations
    would seem exact. A quarter of the points may be outliers. The divisor is the quartile of |x| for normal x. A curve that only
    falls, only rises, or first falls and then rises has no noise, however steep it is and however few points it has.

    >>> noise(np.array([5.0, 3.0, 2.0, 2.1, 2.6]))
    0.0
    """
    return float(np.quantile(np.abs(values - valley(values)), 0.75)) / 1.1503 if len(values) else 0.0


def valley(values: Floats) -> Floats:
    """Return the falling and then rising curve through the lowest of `values`, shape (N,)."""
    lowest = int(np.argmin(values)) if len(values) else 0
    falling, rising = rising_fit(values[: lowest + 1][::-1])[::-1], rising_fit(values[lowest:])
    return np.concatenate((falling, rising[1:]))


def rising_fit(values: Floats) -> Floats:
    """Return the non-decreasing curve with the least sum of absolute deviations from `values`, shape (N,).

    Neighbours out of order are pooled to their median until none are left (Robertson & Wright 1973).
    """
    pools: list[list[float]] = []
    heights: list[float] = []
    for value in values.tolist():
        pool, height = [value], value
        while heights and heights[-1] > height:
            heights.pop()
            pool = sorted(pools.pop() + pool)
            height = median(pool)
        pools.append(pool)
        heights.append(height)
    return np.repeat(np.array(heights), [len(pool) for pool in pools])
