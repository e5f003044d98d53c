"""Plateaus: whether losses still fall, how certain that is, and how long ago they last did."""

from collections.abc import Callable, Iterator

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.metrics.metric import metric
from ckaudit.metrics.reductions import windows
from ckaudit.metrics.trend import Trend, theil_sen
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Series, Steps, single

SOURCE = "playbook D5.2 and D6.1; Theil 1950, Sen 1968"


@metric(unit="nats/token per 1,000 steps", reads=[val_loss], source=SOURCE)
def val_slope(run: Run) -> Series:
    r"""Robust slope of the held-out loss over the last 1,000 steps.

    $$1000 \cdot \operatorname{median}_{i<j} \frac{L_j - L_i}{s_j - s_i}$$

    Shape (E, V): evaluations by held-out sets, as recent_trends takes them. Near 0 is a plateau.
    """
    return _trends(run, lambda trend: 1_000 * trend.slope)


@metric(unit="1", reads=[val_loss], source="playbook D5.2 and D6.1; Mann 1945, Kendall 1975")
def val_slope_p(run: Run) -> Series:
    r"""Probability of so steady a rise or fall of the held-out loss over the last 1,000 steps by chance.

    $$p(|S|), \qquad S = \sum_{i<j} \operatorname{sign}(L_j - L_i)$$

    Shape (E, V): as val_slope. Small with a negative slope: the loss still falls; large: no trend is visible.
    """
    return _trends(run, lambda trend: trend.p)


@metric(unit="steps", reads=[val_loss], source="playbook D5.2; Prechelt 1998")
def steps_since_improvement(run: Run, *, min_fall_share: float = 1e-3) -> Series:
    r"""Number of steps since the held-out loss last fell below its best by more than a thousandth.

    $$t - \max\{s \le t : L_s < (1 - 10^{-3})\,b_s\}$$

    Shape (E, V): evaluations by held-out sets; b is the best before, and the first evaluation counts as an improvement. Not
    recorded if the loss is not finite.

    Args:
        run: The run.
        min_fall_share: Share by which a loss must fall to count.
    """
    evals = val_loss(run)
    values = np.full(evals.values.shape, np.nan)
    for column in range(len(evals.labels)):
        known = np.flatnonzero(evals.finite_in(column))
        losses, steps = evals.values[known, column], evals.steps[known]
        best, rows, last = np.inf, [], 0
        for row, loss in enumerate(losses.tolist()):
            if loss < best - min_fall_share * abs(best) or row == 0:
                best, last = loss, row
            rows.append(last)
        values[known, column] = steps - steps[np.array(rows, np.int64)]
    return replace(evals, values=values, recorded=evals.finite)


@metric(unit="nats/token per 1,000 steps", reads=[train_loss_raw], source="playbook D2.1, D2.3 and D5.4")
def train_loss_slope(run: Run, *, window: int = 100) -> Series:
    r"""Slope of the training loss within consecutive windows of 100 points.

    $$1000 \cdot \frac{\operatorname{median}(L_{late}) - \operatorname{median}(L_{early})}
      {\operatorname{median}(s_{late}) - \operatorname{median}(s_{early})}$$

    Shape (W, 1): each window at its last step, counted in points; early and late are its halves. Up to a quarter of outliers does
    not affect it. A steep slope that flattens is learning; a flat slope at a high loss is a plateau.

    Args:
        run: The run.
        window: Points per window.
    """
    steps, losses = windows(train_loss_raw(run), window)
    half = window // 2
    rise = np.median(losses[:, half:], axis=1) - np.median(losses[:, :half], axis=1)
    way = np.median(steps[:, half:], axis=1) - np.median(steps[:, :half], axis=1)
    return single("train_loss_slope", "1", steps[:, -1], 1_000 * rise / way)


def recent_trends(
    steps: Steps, values: Floats, *, horizon: int = 1_000, min_points: int = 5, max_points: int = 50, apart: int = 10
) -> Iterator[tuple[int, Trend]]:
    """Yield rows and the trend of the points up to each.

    If evaluations are dense the window is a number of steps, else a number of points.

    Args:
        steps: Rising, shape (E,).
        values: Finite, shape (E,).
        horizon: Number of past steps.
        min_points: Number of past points if the horizon has fewer; earlier points have no trend.
        max_points: Largest number of points in a fit; more are thinned.
        apart: Number of trends per horizon; of evaluations that are closer, one is used.
    """
    starts = np.minimum(np.searchsorted(steps, steps - horizon), np.arange(len(steps)) - min_points + 1)
    turn = steps // max(1, horizon // apart)
    first = np.diff(turn, prepend=-1) > 0
    for row in np.flatnonzero(first & (starts >= 0)).tolist():
        inside = slice(int(starts[row]), row + 1)
        yield row, theil_sen(steps[inside].astype(float), values[inside], max_points=max_points)


def _trends(run: Run, part: Callable[[Trend], float]) -> Series:
    evals = val_loss(run)
    values = np.full(evals.values.shape, np.nan)
    for row, column, trend in run.derived("trends of evaluations", lambda: [*_every_trend(evals)]):
        values[row, column] = part(trend)
    return replace(evals, values=values, recorded=np.isfinite(values))


def _every_trend(evals: Series) -> Iterator[tuple[int, int, Trend]]:
    for column in range(len(evals.labels)):
        known = np.flatnonzero(evals.finite_in(column))
        for row, trend in recent_trends(evals.steps[known], evals.values[known, column]):
            yield int(known[row]), column, trend
