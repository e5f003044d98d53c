"""LOSS002: the model memorises the training set."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.divergence import divergence_step
from ckaudit.metrics.loss import train_loss_at_evals, val_loss
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.series import Series


@rule("LOSS002", severity="sev2", needs=[val_loss], wants=[train_loss_at_evals], unit="nats/token")
def overfitting(
    val: Series, train: Series | None, *, min_evals: int = 3, rise: float = 0.01, mads: float = 3.0
) -> Iterator[Hit | Skip]:
    """The validation loss rises while the training loss does not.

    ## What it checks
    At least `min_evals` evaluations after the lowest validation loss, a rise over it beyond `rise` and beyond `mads`
    robust deviations of the evaluations' own noise, and a training loss that did not rise with it (F12, playbook D5.1).
    Where no training loss was recorded the rise alone counts, and the message says so. The first step is that of the
    first evaluation after the divergence step: in between it began.
    ## Why it matters
    From that step on the budget buys memory, not ability.
    ## False alarms
    Healthy runs end 0.1 to 0.3 % above their lowest validation loss; both bounds lie above that. A held-out loss that
    rises in one jump and falls on from there comes from another evaluation, not from memory.
    """
    known = val.finite[:, 0]
    if known.sum() < min_evals + 2:
        yield Skip("too_few_points", f"{int(known.sum())} evaluations; {min_evals + 2} are needed")
        return
    steps, losses = val.steps[known], val.values[known, 0]
    level = np.zeros(len(steps)) if train is None else train.values[known, 0]
    onset = divergence_step(steps, level, losses, min_evals=min_evals, rise=rise, mads=mads)
    if onset is None:
        return
    first = int(np.searchsorted(steps, onset, side="right"))
    lowest = int(np.argmin(losses))
    worst = lowest + int(np.argmax(losses[lowest:]))
    yield Hit(
        severity="sev2", where="val_loss", first=int(steps[first]), last=int(steps[-1]), worst=int(steps[worst]),
        value=float(losses[worst]), limit=float(losses[lowest]), points=len(steps) - first,
        message=f"the validation loss rises to {{value:.4g}} from its lowest, {{limit:.4g}} at step {steps[lowest]}"
        + ("; no training loss was recorded beside it" if train is None else ""),
    )  # fmt: skip
