"""How far a loss may change after all that it has fallen, and nothing is lost."""

import numpy as np

from ckaudit.run.medians import median
from ckaudit.run.series import Floats, Series

SOLVED = 0.1
"""A loss below this share of its first is learnt for the most part, and small gradients and updates are no illness."""

NEGLIGIBLE_RISE, NEGLIGIBLE_WHEN_SOLVED = 0.02, 0.05
"""Share of what a loss has fallen below which a rise is nothing: of a loss near zero a tenth of its level is no news, and of a
task that is solved a twentieth is what single batches take back."""


def is_negligible(change: float, held_out: Floats, trained: Series | None) -> bool:
    """Tell whether a change is next to nothing beside what has been learnt since the first losses.

    Args:
        change: Of a loss.
        held_out: Losses on held-out data, shape (E,); their lowest is what learning has come to.
        trained: The training loss from the beginning of the run; None where it is not known.
    """
    known = trained.finite_points()[1] if trained is not None and trained.labels else np.empty(0)
    untrained = max(median(losses[:3]) for losses in (held_out, known) if len(losses))
    return change <= negligible_rise(float(held_out.min()), untrained)


def negligible_rise(low: float, untrained: float) -> float:
    """Return how far a loss that has come from that of an untrained model to a low one may rise again, and nothing is lost.

    >>> negligible_rise(1.0, 3.0), negligible_rise(0.0, 2.0)
    (0.04, 0.1)
    """
    is_solved = 0 <= low < SOLVED * untrained  # below zero there is no telling how much is left
    return (NEGLIGIBLE_WHEN_SOLVED if is_solved else NEGLIGIBLE_RISE) * (untrained - low)
