"""Overhead: what recording itself takes from the training."""

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled, ratio, relabelled
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Series, Steps, at, empty, single


@metric(unit="1", reads=["cost.share", "cost.step_share"], source="dashboard page, overhead budget")
def recording_share(run: Run) -> Series:
    r"""Share of the time that recording takes.

    $$s_i = \frac{\text{time in the recorder}}{\text{time}} \;\approx\; \frac{c_i}{c_i + t_i - t_{i-1}}$$

    Shape (C, 1): checkpoints, each with the steps since the one before. The right-hand form, with the cost $c_i$ of a
    checkpoint in steps, stands in where only that was recorded; it leaves out what every step costs.
    """
    cost = run.value("cost.step_share").recorded_rows()
    apart = np.diff(cost.steps, prepend=np.nan)[:, None]
    known = cost.recorded & (apart > 0)
    with np.errstate(all="ignore"):
        series = replace(cost, values=np.where(known, cost.values / (cost.values + apart), np.nan), recorded=known)
    name = "recording_share"
    return filled(relabelled(run.value("cost.share"), name), relabelled(series, name))


@metric(unit="s", reads=["time", "cost.ms", "cost.step_share", recording_share], source="dashboard page, overhead budget")
def recording_seconds(run: Run) -> Series:
    r"""Time that recording has taken so far.

    $$S_i = \sum_{j \le i} s_j\,(\tau_j - \tau_{j-1})$$

    Shape (C, 1): checkpoints whose share $s_j$ of the time is known, from the clock $\tau$ of the log. Where no clock was logged
    the length of a step without recording, its milliseconds over its cost in steps, times steps and $s_j / (1 - s_j)$, stands
    in for it; of that, shares count up to 0.9, for of what is left of a share of one nobody knows how many steps it was.
    """
    share = recording_share(run)
    if not share:
        return empty("recording_seconds", "s")
    times = _column(run.scalar("time"), share.steps)
    step = ratio(relabelled(run.value("cost.ms"), "cost"), relabelled(run.value("cost.step_share"), "cost"))
    lengths = _column(step, share.steps) / 1e3
    part = share.values[:, 0]
    capped = np.minimum(part, 0.9)
    with np.errstate(all="ignore"):
        by_clock = part * np.maximum(np.diff(times, prepend=np.nan), 0.0)
        by_steps = lengths * np.diff(share.steps, prepend=np.nan) * capped / (1 - capped)
    known = share.recorded[:, 0]
    taken = np.where(np.isfinite(by_clock), by_clock, by_steps)[known]
    return single("recording_seconds", "s", share.steps[known], np.nancumsum(taken))


def _column(series: Series, steps: Steps) -> Floats:
    """Return the one value that a series has at each step, NaN where it has none."""
    return at(series, steps).values[:, 0] if series else np.full(len(steps), np.nan)
