"""REPLAY001: the same steps from the same state do not give the same numbers again."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.replay import replay_first_difference, replay_identical, replay_loss_diff
from ckaudit.rules.rule import Hit, Skip, needs_one_of, rule
from ckaudit.run.series import Mask, Series, Steps, at


@rule(
    "REPLAY001",
    severity="sev2",
    needs=[],
    wants=[replay_identical, replay_loss_diff, replay_first_difference],
    unit="nats/token",
    memory=1,
)
def replay_differs(same: Series | None, diff: Series | None, first: Series | None) -> Iterator[Hit | Skip]:
    """The same steps from the same state do not give the same numbers again.

    ## What it checks
    Each replay of recorded steps: whether every bit came again, and whether the losses are equal (playbook D1.6). There is no
    tolerance, for a difference of one bit grows with every step.
    ## Why it matters
    Something between the two runs is not determined: a seed, a kernel, the order of the data, or a state that a resume does not
    restore. Until it is known, no incident can be replayed, and no small difference of two runs means anything.
    ## False alarms
    Kernels that add in no fixed order differ in the last bits, and some trainings accept that: a policy ignores the finding with
    a reason.
    """
    if same is None and diff is None:
        yield needs_one_of(replay_identical, replay_loss_diff)
        return
    steps = np.union1d(*(np.array([], np.int64) if series is None else series.steps for series in (same, diff)))
    differs = steps[_differs(same, diff, steps)].tolist()
    if not differs:
        return
    apart = [] if diff is None else [float(value) for value in diff.finite_points()[1] if value]
    since = int(first.values[first.finite].min()) if first is not None and first.finite.any() else None
    message = f"{len(differs)} of {len(steps)} replays did not give every bit again"
    message += "; losses differ by up to {value:.3g}" if apart else ""
    yield Hit(
        severity="sev2",
        where="replay",
        first=differs[0] if since is None else min(since, differs[0]),
        last=differs[-1],
        worst=differs[0],
        value=max(map(abs, apart), default=None),
        points=len(differs),
        message=message + ("" if since is None else f"; the first difference is at step {since}"),
    )


def _differs(same: Series | None, diff: Series | None, steps: Steps) -> Mask:
    """Tell which of the replays that were recorded at these steps differ, shape (T,)."""
    identical, apart = np.ones(len(steps)), np.zeros(len(steps))
    for series, values in ((same, identical), (diff, apart)):
        if series is not None:
            seen = at(series, steps)
            is_recorded = seen.age[:, 0] == 0
            values[is_recorded] = seen.values[is_recorded, 0]
    differs: Mask = (identical != 1.0) | (apart != 0.0)
    return differs
