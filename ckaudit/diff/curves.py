"""The losses of two runs side by side, few enough points for a picture."""

import numpy as np

from ckaudit.contract.diff import Curve
from ckaudit.contract.numbers import Number, to_word
from ckaudit.diff.run_pair import Both
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.run.medians import median
from ckaudit.run.series import Floats


def curves(both: Both, *, most: int = 120) -> list[Curve]:
    """Return the training loss of both runs, stretch by stretch; nothing where they share fewer than two points.

    A stretch has the median of its values; one in which a value is no number is none either, so that no picture hides it.

    Args:
        both: The runs on one axis.
        most: Stretches at most; no screen draws more columns.
    """
    paired = both.paired(train_loss_raw)
    if not paired.labels:
        return []
    rows = np.flatnonzero(paired.recorded[:, 0])
    if len(rows) < 2:
        return []
    parts = np.array_split(rows, min(most, len(rows)))
    return [
        Curve(
            name=paired.name,
            unit=paired.unit,
            steps=[int(paired.steps[part[-1]]) for part in parts],
            left=[_middle(paired.left[part, 0]) for part in parts],
            right=[_middle(paired.right[part, 0]) for part in parts],
        )
    ]


def _middle(values: Floats) -> Number:
    broken = values[~np.isfinite(values)]
    return to_word(float(broken[0] if len(broken) else median(values)))
