"""SLIC001: one slice of the held-out text gets worse while the whole does not."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.divergence import divergence_step
from ckaudit.metrics.loss import slice_val_loss, val_loss
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.series import Floats, Series, Steps, at


@rule("SLIC001", severity="sev1", needs=[slice_val_loss], wants=[val_loss], unit="nats/token")
def slice_regression(
    losses: Series,
    whole: Series | None,
    *,
    min_evals: int = 3,
    min_rise: float = 0.01,
    mads: float = 3.0,
    slices: tuple[str, ...] = (),
) -> Iterator[Hit | Skip]:
    """A slice of the held-out text gets worse for good.

    ## What it checks
    The rule looks for the divergence step of each slice's held-out loss (M56, playbook D5.5), which also dates the findings of
    LOSS002.

    - At least `min_evals` evaluations follow the slice's lowest loss.
    - The last evaluations stand above the lowest by more than `min_rise`, and by more than `mads` robust deviations of the
      slice's own noise.
    - Such a slice is sev2 where the loss of the whole did not rise along.
    - The `slices` that a policy watches must not rise at all: such a slice is sev1, whatever the whole does.
    ## Why it matters
    An average hides what it loses: the model forgets one kind of text while it gains on the others.
    ## False alarms
    A slice of few tokens is noisy, so it is compared with its own noise. Where all slices rise together, it is overfitting, and
    LOSS002 says so.
    """
    judged = losses.finite.sum(axis=0) >= min_evals + 2  # (P,)
    if not judged.any():
        yield Skip("too_few_points", f"at most {int(losses.finite.sum(axis=0).max())} evaluations; {min_evals + 2} are needed")
        return
    for column in np.flatnonzero(judged):
        name = losses.labels[column].rpartition("/")[2]
        known = losses.finite_in(int(column))
        steps, values = losses.steps[known], losses.values[known, column]
        level = np.zeros(len(steps)) if name in slices or whole is None else at(whole, steps).values[:, 0]
        onset = divergence_step(steps, level, values, min_evals=min_evals, rise=min_rise, mads=mads)
        if onset is not None:
            yield _hit(name, steps, values, onset, watched=name in slices, alone=whole is not None)


def _hit(name: str, steps: Steps, values: Floats, onset: int, *, watched: bool, alone: bool) -> Hit:
    lowest = int(np.argmin(values))
    worst = lowest + int(np.argmax(values[lowest:]))
    since = f"at step {steps[lowest]}"
    tail = "; the policy watches it" if watched else ", while the whole does not rise" if alone else ""
    return Hit(
        severity="sev1" if watched else "sev2",
        where=f"slice_val_loss/{name}",
        first=onset,
        last=int(steps[-1]),
        worst=int(steps[worst]),
        value=float(values[worst]),
        limit=float(values[lowest]),
        points=int((steps >= onset).sum()),
        message=f"the held-out loss of {name} rises to {{value:.4g}} from its lowest, {{limit:.4g}} {since}{tail}",
    )
