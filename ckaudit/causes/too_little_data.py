"""The model has more capacity than the data has content."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.report import Evidence
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.rules.overfitting import overfitting
from ckaudit.run.series import Series, at


@cause(
    prior=-0.5,
    explains=[overfitting],
    wants=[train_loss_raw, val_loss],
    knob="Stop at the step of the lowest validation loss; then more or more varied data, or more regularisation.",
    inspect="Training and validation loss on one axis, and how often each sample has been seen.",
    runbook="Keep the checkpoint nearest to the lowest validation loss: it is the model to use.",
)
def too_little_data(
    found: Findings,
    train: Series | None,
    val: Series | None,
    *,
    wide: float = 0.2,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """The model memorises: it sees too little data for its capacity and its number of steps.

    Validation is far from training where their gap is more than `wide` of the validation loss.
    Weights are starting values, to be fitted on runs of known truth.
    """
    first = found.first(overfitting)
    if first is None or train is None or val is None or first.last_step is None:
        return
    known = train.finite[:, 0]
    if not known.any():
        return
    start, end = at(train, np.array([first.first_step, first.last_step])).values[:, 0]
    last = float(val.values[val.finite[:, 0], 0][-1])
    if end < start:
        yield supports(strong, f"the training loss goes on falling, from {start:.3g} to {end:.3g}, while validation rises", first)
    elif end > start * 1.05:
        yield contradicts(strong, f"the training loss rises too, from {start:.3g} to {end:.3g}", first)
    if last > 0 and (last - end) / last > wide:
        yield supports(medium, f"validation ends at {last:.3g}, training at {end:.3g}", val_loss.name)
