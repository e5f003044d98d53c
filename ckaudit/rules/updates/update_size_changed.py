"""DATA011: an update is made of more or fewer tokens than before."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.progress import tokens_per_update
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.robust import MAD_TO_SIGMA
from ckaudit.run.series import Series


@rule("DATA011", severity="note", needs=[tokens_per_update], unit="tokens/update")
def update_size_changed(size: Series, *, max_change: float = 0.2, window: int = 20, mads: float = 6.0) -> Iterator[Hit | Skip]:
    """An update is made of more or fewer tokens than before.

    ## What it checks
    The median of `window` updates against that of the `window` before them (M08: the size of an update is an invariant). The size
    has changed where the two are apart by more than `max_change` and by more than `mads` robust deviations of the sizes before.
    All are starting values.
    ## Why it matters
    The noise of the gradient, the fitting learning rate and the loss per step change with the size of an update. The two sides of
    the change do not compare, and neither do two runs of which only one has it.
    ## False alarms
    Growing batches and growing rows are often planned: hence a note. Padding makes sizes wander, which is part of their
    deviation. Updates in which no token is counted at all are another rule's business.
    """
    rows = np.flatnonzero(size.finite[:, 0])
    count = len(rows) // window
    if count < 2:
        yield Skip("too_few_points", f"{len(rows)} values of tokens_per_update; {2 * window} are needed")
        return
    blocks = size.values[rows[: count * window], 0].reshape(count, window)
    middle = np.median(blocks, axis=1)
    spread = MAD_TO_SIGMA * np.median(np.abs(blocks - middle[:, None]), axis=1)[:-1]
    apart = np.abs(np.diff(middle))
    changes = (apart > max_change * middle[:-1]) & (apart > mads * spread) & (middle[1:] > 0) & (middle[:-1] > 0)  # (B - 1,)
    for block in np.flatnonzero(changes).tolist():
        yield Hit.at(
            size.steps[rows[(block + 1) * window :]],
            "note",
            "an update has {value:.4g} tokens from about step {first} on, and {limit:.4g} before; losses on the two "
            "sides do not compare",
            where="tokens_per_update",
            value=float(middle[block + 1]),
            limit=float(middle[block]),
        )
