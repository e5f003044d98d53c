"""Flags: the points of a series that stand out from those before them, as 1 and 0, to be counted or drawn."""

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.metric import metric
from ckaudit.metrics.spikes import MEMORY, flagged, grad_norm_excess, loss_excess
from ckaudit.run.run import Run
from ckaudit.run.series import Series


@metric(unit="1", reads=[loss_excess], source="F15; playbook D4.1", memory=MEMORY)
def spike_flags(run: Run) -> Series:
    r"""Whether the training loss stands out from its last 50 points: 1 is a flag, one alone is not yet an incident.

    $$\mathbb{1}[\,L_t > m_t + 6 \cdot 1.4826\,\mathrm{MAD}_t\,]$$

    Shape (T, 1): as loss_excess, counted in points. NaN where the loss is not finite.
    """
    return _flags(loss_excess(run))


@metric(unit="1", reads=[grad_norm_excess], source="F15; playbook D4.1", memory=MEMORY)
def grad_spike_flag(run: Run) -> Series:
    r"""Whether the global gradient norm stands out from its last 50 points.

    $$\mathbb{1}[\,z_t > 6\,]$$

    Shape (T, 1): as grad_norm_excess, counted in points. NaN where the norm is not finite.
    """
    return _flags(grad_norm_excess(run))


def _flags(excess: Series) -> Series:
    return replace(excess, values=np.where(excess.finite, flagged(excess), np.nan))
