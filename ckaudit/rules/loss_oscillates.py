"""LOSS008: the loss goes up and down in turns."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.loss import train_loss_raw
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.robust import alternates, fall_of
from ckaudit.run.series import Series


@rule("LOSS008", severity="sev2", needs=[train_loss_raw], unit="nats/token")
def loss_oscillates(
    loss: Series, *, min_points: int = 14, max_chance: float = 5e-3, min_swing: float = 0.25
) -> Iterator[Hit | Skip]:
    """The loss goes up and down in turns.

    ## What it checks
    The last half of the loss, or all of it where there are fewer than four times `min_points`: steps up that are followed by
    steps down, more often than in independent values by a chance below `max_chance` (turning points), by more than
    `min_swing` of the level, and no fall from the first third to the last.
    ## Why it matters
    Updates that overshoot the valley from one side to the other learn nothing on the way (D2.1: pure oscillation).
    ## False alarms
    Noise of batches turns in two of three points. Two sources of data taken in turns differ by
    less than that, and both fall.
    """
    values = loss.values[loss.finite[:, 0], 0]
    steps = loss.steps[loss.finite[:, 0]]
    if len(values) < min_points:
        yield Skip("too_few_points", f"{len(values)} finite points of the loss; {min_points} are needed")
        return
    start = len(values) // 2 if len(values) >= 4 * min_points else 0
    if alternates(values[start:], max_chance=max_chance, min_swing=min_swing) and fall_of(values[start:]).is_none:
        low, high = (float(value) for value in np.percentile(values[start:], (25, 75)))
        worst = start + int(np.argmax(values[start:]))
        yield Hit(
            severity="sev2", where="loss", first=int(steps[start]), last=int(steps[-1]), worst=int(steps[worst]), value=high,
            limit=low, points=len(values) - start,
            message="the loss swings between {limit:.4g} and {value:.4g} from point to point",
        )  # fmt: skip
