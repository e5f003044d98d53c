"""Overhead: what recording itself takes from the training."""

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled, ratio, relabelled, together
from ckaudit.run.run import Run
from ckaudit.run.series import Series, empty, single


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


@metric(unit="s", reads=["cost.ms", "cost.step_share", recording_share], source="dashboard page, overhead budget")
def recording_seconds(run: Run) -> Series:
    r"""Time that recording has taken so far.

    $$S_i = \sum_{j \le i} \tau_j\,(t_j - t_{j-1})\,\frac{s_j}{1 - s_j}$$

    Shape (C, 1): checkpoints whose share $s_j$ of the time is known, and the length $\tau_j$ of a step without recording: its
    milliseconds over its cost in steps.
    """
    step = ratio(relabelled(run.value("cost.ms"), "cost"), relabelled(run.value("cost.step_share"), "cost"))
    share, step = together(recording_share(run), relabelled(step, "recording_share"))
    if not share:
        return empty("recording_seconds", "s")
    known = (share.recorded & step.recorded)[:, 0]
    steps, part = share.steps[known], np.minimum(share.values[known, 0], 0.999)
    taken = step.values[known, 0] / 1e3 * np.diff(steps, prepend=np.nan) * part / (1 - part)
    return single("recording_seconds", "s", steps, np.nancumsum(taken))
