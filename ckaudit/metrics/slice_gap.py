"""Tau: difference of the losses of two data slices, with its trend."""

from collections.abc import Callable

import numpy as np

from ckaudit.metrics.loss import slice_val_loss
from ckaudit.metrics.metric import metric
from ckaudit.metrics.trend import Trend, theil_sen
from ckaudit.run.run import Run
from ckaudit.run.series import Series, Steps, empty, single

MIN_POINTS = 3
"""Two points define a line, but no trend."""
TREND_WINDOW = 100
"""Finite evaluations in a trend; the number of pairs grows with its square."""


@metric(unit="nats/token", reads=[slice_val_loss, "loss_regular", "loss_irregular", "tau"], source="F13, F14", memory=1)
def tau(run: Run) -> Series:
    r"""Loss of the hard slice minus loss of the easy one: irregular minus regular forms, or any two slices.

    $$\tau = L_{irregular} - L_{regular}$$

    Shape (E, 1): steps at which both slices have a loss. Run.easy_and_hard names the slices. A held-out loss of the slice takes
    precedence over one of the training batches. A logged tau counts if the two losses are not logged and no slices are named.
    Positive while the hard slice is not learnt yet, about 0 once it is memorised. Not recorded if either slice is not; NaN if
    either is NaN.
    """
    logged = run.scalar("tau")
    easy, hard = (slice_loss(run, name) for name in run.easy_and_hard)
    if not easy or not hard:
        return logged if run.names_no_slices else empty("tau")
    beside = _on_steps(easy, hard.steps)
    known = hard.recorded[:, 0] & beside.recorded[:, 0]
    with np.errstate(invalid="ignore"):
        return single("tau", "nats/token", hard.steps, hard.values[:, 0] - beside.values[:, 0], known).recorded_rows()


@metric(unit="nats/token per 1,000 steps", reads=[tau], source="F14; Theil 1950, Sen 1968", memory=2 * TREND_WINDOW)
def tau_trend(run: Run) -> Series:
    r"""Robust slope of tau over the evaluations so far.

    $$1000 \cdot \operatorname{median}_{i<j \le t} \frac{\tau_j - \tau_i}{s_j - s_i}$$

    Shape (E, 1): evaluations with a finite tau. Not recorded before the third evaluation.
    """
    return _trends(run, lambda trend: 1_000 * trend.slope)


@metric(unit="1", reads=[tau], source="F14; Mann 1945, Kendall 1975", memory=2 * TREND_WINDOW)
def tau_trend_p(run: Run) -> Series:
    r"""Probability of so steady a rise or fall of tau by chance.

    $$p(|S|), \qquad S = \sum_{i<j} \operatorname{sign}(\tau_j - \tau_i)$$

    Shape (E, 1): as tau_trend, whose slope it judges.
    """
    return _trends(run, lambda trend: trend.p)


def latest_tau_trend(run: Run) -> float | None:
    """Return `tau_trend` at the last evaluation only; None if there are too few evaluations."""
    trends = _trends(run, lambda trend: 1_000 * trend.slope, latest=True)
    return float(trends.values[-1, 0]) if trends else None


def slice_loss(run: Run, name: str) -> Series:
    """Return the loss of one slice by name: held-out, else of the training batches, else the scalar of that name."""
    family, _, label = name.partition("/")
    series = _column(slice_val_loss(run), name) or _column(run.scalar(f"loss_{name}"))
    if series is None and not run.names_no_slices:
        series = _column(run.scalar(family), label)
    return series or empty(name)


def _column(series: Series, label: str = "") -> Series | None:
    """Return one column of a series, by default the first; None if it has no record."""
    label = label or next(iter(series.labels), "")
    if label not in series.places:
        return None
    place = series.places[label]
    column = single(series.name, "nats/token", series.steps, series.values[:, place], series.recorded[:, place])
    return column or None


def _on_steps(series: Series, steps: Steps) -> Series:
    """Return a series of one column at exactly these steps, not recorded where it lacks the step."""
    if not len(series.steps):
        return single(series.name, series.unit, steps, np.full(len(steps), np.nan), np.zeros(len(steps), bool))
    rows = np.minimum(np.searchsorted(series.steps, steps), len(series.steps) - 1)
    known = (series.steps[rows] == steps) & series.recorded[rows, 0]
    return single(series.name, series.unit, steps, np.where(known, series.values[rows, 0], np.nan), known)


def _trends(run: Run, value: Callable[[Trend], float], *, latest: bool = False) -> Series:
    """Return one number of the trend over the last evaluations, at each evaluation or only at the last."""
    gap = tau(run)
    known = np.flatnonzero(gap.finite[:, 0]) if gap else np.empty(0, np.int64)
    steps, values = gap.steps[known], gap.values[known, :1].ravel()
    slopes = np.full(len(known), np.nan)
    for end in range(max(MIN_POINTS, len(known)) if latest else MIN_POINTS, len(known) + 1):
        inside = slice(max(end - TREND_WINDOW, 0), end)
        slopes[end - 1] = value(theil_sen(steps[inside].astype(float), values[inside]))
    return single("tau", "1", steps, slopes, np.isfinite(slopes))
