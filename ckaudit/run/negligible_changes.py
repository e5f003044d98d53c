"""How far a loss may change without a loss of progress, given how far it has fallen."""

import numpy as np

from ckaudit.run.medians import median
from ckaudit.run.series import Floats, Series

SOLVED = 0.1
"""A loss below this share of its first is mostly learnt, and small gradients and updates are not a problem."""

NEGLIGIBLE_RISE, NEGLIGIBLE_WHEN_SOLVED = 0.02, 0.05
"""Share of a loss's fall below which a rise is negligible: a tenth of a loss near zero means nothing, and single batches of a
solved task take back a twentieth."""


def is_negligible(change: float, held_out: Floats, trained: Series | None) -> bool:
    """Tell whether a change of a loss is negligible relative to its fall since the first losses.

    Args:
        change: The change.
        held_out: Losses on held-out data, shape (E,); their lowest is the best level reached.
        trained: The training loss from the start of the run; None if unknown.
    """
    known = trained.finite_points()[1] if trained is not None and trained.labels else np.empty(0)
    untrained = max(median(losses[:3]) for losses in (held_out, known) if len(losses))
    return change <= negligible_rise(float(held_out.min()), untrained)


def negligible_rise(low: float, untrained: float) -> float:
    """Return how far a loss may rise again from a low level without a loss of progress, given that of the untrained model.

    >>> negligible_rise(1.0, 3.0), negligible_rise(0.0, 2.0)
    (0.04, 0.1)
    """
    is_solved = 0 <= low < SOLVED * untrained  # a negative loss does not show how much is left to learn
    return (NEGLIGIBLE_WHEN_SOLVED if is_solved else NEGLIGIBLE_RISE) * (untrained - low)
