"""A gradient norm that adds up: each step's holds those of the steps before it."""

import numpy as np
from msgspec import Struct

from ckaudit.causes.cause import Findings
from ckaudit.rules.loss.loss_oscillates import loss_oscillates
from ckaudit.rules.loss.loss_rises import loss_rises
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.run.medians import median
from ckaudit.run.series import Series


class NormTrend(Struct, frozen=True):
    """How a gradient norm goes.

    Attributes:
        start: Median of the first points.
        peak: The largest.
        change: What it changes by from one step to the next in the second half, as a share, the median.
        rank_correlation: Of the norm and the steps.
    """

    start: float
    peak: float
    change: float
    rank_correlation: float

    def adds_up(self, *, grown: float = 5.0, smooth: float = 0.1, steady: float = 0.9) -> bool:
        """Tell whether it is a sum that is never cleared.

        A sum of gradients differs from the sum before it by one gradient only. Once it has grown to over `grown` times its start,
        it changes by less than `smooth` from step to step, where batches alone change a norm by tens of percent, and
        rises with the steps (rank correlation over `steady`).
        """
        return self.peak >= grown * self.start and self.change < smooth and self.rank_correlation > steady


def norm_trend(norm: Series | None, *, first: int = 10) -> NormTrend | None:
    """Return how a global gradient norm goes; None where fewer than three times `first` points are known."""
    values = norm.values[norm.finite] if norm is not None else np.empty(0)
    values = values[values > 0]
    if len(values) < 3 * first:
        return None
    change = median(np.abs(np.diff(np.log(values[len(values) // 2 :]))))
    ranks = float(np.corrcoef(np.argsort(np.argsort(values)), np.arange(len(values)))[0, 1])
    return NormTrend(median(values[:first]), float(values.max()), change, ranks)


def loss_is_calm(findings: Findings, loss: Series | None) -> bool | None:
    """Tell whether the loss neither jumps, rises nor swings, as it does where updates are sums of all gradients so far.

    None where it was not recorded.
    """
    return None if loss is None else findings.first(loss_spike, loss_rises, loss_oscillates) is None
