"""Overhead: the cost of recording for the training."""

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled, ratio, relabelled
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Series, Steps, at, empty, single


@metric(unit="1", reads=["cost.share", "cost.step_share"], source="dashboard page, overhead budget")
def recording_share(run: Run) -> Series:
    r"""Share of the time spent on recording.

    $$s_i = \frac{\text{time in the recorder}}{\text{time}} \;\approx\; \frac{c_i}{c_i + t_i - t_{i-1}}$$

    Shape (C, 1): checkpoints, each with the steps since the one before. The right-hand form, with the cost $c_i$ of a checkpoint
    in steps, is used if only that is recorded; it excludes the cost of every step.
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
    r"""Time spent on recording so far.

    $$S_i = \sum_{j \le i} s_j\,(\tau_j - \tau_{j-1})$$

    Shape (C, 1): checkpoints whose share $s_j$ of the time is known, with the clock $\tau$ of the log. If no clock is logged,
    each term is the length of a step without recording (cost in milliseconds over cost in steps) times the number of steps and
    $s_j / (1 - s_j)$. There $s_j$ is capped at 0.9, because the term diverges as it approaches 1.
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
    """Return the last value of a series at or before each step, NaN if there is none."""
    return at(series, steps).values[:, 0] if series else np.full(len(steps), np.nan)
