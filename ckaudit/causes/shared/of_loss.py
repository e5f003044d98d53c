"""What causes ask of losses: whether one was known before a step, whether held-out slices part company."""

import numpy as np

from ckaudit.run.series import Series


def parted(slices: Series, step: int, *, rise: float = 0.05) -> tuple[str, str] | None:
    """Return a slice whose loss has risen since a step and one whose loss has fallen, by `rise` each; None where all agree.

    What is learnt by heart costs all slices; other data costs those that it leaves out, and helps those it holds.

    Args:
        slices: Held-out loss of each slice, shape (E, S).
        step: The last evaluation at or before it is compared with the last of all.
        rise: Relative change that counts.
    """
    before = int(np.searchsorted(slices.steps, step, side="right")) - 1
    if before < 0 or before == len(slices.steps) - 1:
        return None
    with np.errstate(all="ignore"):
        ratio = slices.values[-1] / slices.values[before]  # (S,)
    if not np.isfinite(ratio).any():
        return None
    up, down = int(np.nanargmax(ratio)), int(np.nanargmin(ratio))
    return (slices.labels[up], slices.labels[down]) if ratio[up] > 1 + rise and ratio[down] < 1 - rise else None


def has_finite_loss_before(loss: Series | None, step: int) -> bool:
    """Tell whether a finite loss was recorded before a step, or none at all was ever looked for."""
    return loss is None or bool((loss.finite[:, 0] & (loss.steps < step)).any())
