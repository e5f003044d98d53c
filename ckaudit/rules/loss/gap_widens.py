"""EVL003: held-out loss and training loss part company."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.divergence import val_rise
from ckaudit.metrics.loss import train_val_gap, val_loss
from ckaudit.metrics.trend import theil_sen
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.series import Series


@rule("EVL003", severity="note", needs=[train_val_gap, val_loss], wants=[val_rise], unit="nats/token")
def gap_widens(
    gap: Series, val: Series, rise: Series | None, *, min_gap_share: float = 0.1, max_chance: float = 0.02, min_evals: int = 10
) -> Iterator[Hit | Skip]:
    """The gap between held-out and training loss widens while both still fall.

    ## What it checks
    The gap between held-out and training loss, over the second half of the evaluations, from `min_evals` evaluations in all on.
    All of these hold:

    - The gap has an upward trend that chance gives with a probability below `max_chance` (Mann 1945).
    - The gap ends above `min_gap_share` of the held-out loss (M55).
    - The held-out loss ends no more than 1 % above its best.
    ## Why it matters
    Overfitting begins this way: more data, or fewer passes over it, would still help.
    ## False alarms
    Every model fits its training set better in the end, so this is a note. Where the held-out loss rises, it is overfitting.
    """
    known = np.flatnonzero(gap.finite[:, 0])
    if len(known) < min_evals:
        yield Skip("too_few_points", f"{len(known)} evaluations; {min_evals} are needed")
        return
    late = known[len(known) // 2 :]
    trend = theil_sen(gap.steps[late].astype(float), gap.values[late, 0])
    width, level = float(gap.values[late[-1], 0]), float(val.values[late[-1], 0])
    if not (trend.slope > 0 and trend.p < max_chance and width > min_gap_share * abs(level)):
        return
    if rise is not None and float(np.nan_to_num(rise.values[late[-1], 0])) > 0.01:
        return
    yield Hit.at(
        gap.steps[late],
        "note",
        "the held-out loss lies {value:.3g} above the training loss, and the gap widens steadily",
        where=gap.labels[0],
        value=width,
        limit=min_gap_share * abs(level),
        worst=-1,
    )
