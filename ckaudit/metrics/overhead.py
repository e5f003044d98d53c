"""Overhead: what recording itself takes from the training."""

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled, relabelled
from ckaudit.run.run import Run
from ckaudit.run.series import Series


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
        made = replace(cost, values=np.where(known, cost.values / (cost.values + apart), np.nan), recorded=known)
    name = "recording_share"
    return filled(relabelled(run.value("cost.share"), name), relabelled(made, name))
