"""Onset of overfitting: the divergence step as a number of the run."""

import numpy as np

from ckaudit.metrics.divergence import divergence_step as onset
from ckaudit.metrics.loss import train_loss_at_evals, val_loss
from ckaudit.metrics.metric import metric
from ckaudit.run.run import Run
from ckaudit.run.series import Series, empty, single


@metric(unit="steps", reads=[val_loss, train_loss_at_evals], source="F12; Prechelt 1998, generalization loss")
def divergence_step(run: Run) -> Series:
    r"""Step after which the gap between held-out and training loss widens for good.

    $$t^* = \min \{ t : g(t_2) > g(t_1) \; \text{for all evaluations} \; t \le t_1 < t_2 \}, \quad t \ge t_{best}$$

    Shape (E, 1): at each evaluation the step that is known by then; of more than 500 evaluations, at some of them. Noise of
    the gap does not end a widening, and the held-out loss must have risen, as `divergence.divergence_step` says. NaN
    where the losses have not parted; not recorded without a training loss.
    """
    evals, level = val_loss(run), train_loss_at_evals(run)
    if not evals or not level:
        return empty("divergence_step")
    onsets, looked_at = np.full(len(evals.steps), np.nan), _looked_at(len(evals.steps))
    for row in looked_at:
        step = onset(evals.steps[: row + 1], level.values[: row + 1, 0], evals.values[: row + 1, 0])
        onsets[row] = np.nan if step is None else step
    return single("divergence_step", "steps", evals.steps, onsets, np.isin(np.arange(len(onsets)), looked_at))


def last_divergence_step(run: Run) -> int | None:
    """Return the divergence step as the whole record shows it, None where the losses have not parted."""
    evals, level = val_loss(run), train_loss_at_evals(run)
    return onset(evals.steps, level.values[:, 0], evals.values[:, 0]) if evals and level else None


def _looked_at(evals: int, *, every_one: int = 500) -> list[int]:
    """Return the rows that are computed, the same ones however long the record is: every one, every second, every fourth, ..."""
    return [row for row in range(evals) if row % 2 ** max(0, (row // every_one).bit_length()) == 0]
