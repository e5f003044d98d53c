"""LOSS013: a discriminator tells all products of its generator from real ones."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.loss import loss_part
from ckaudit.metrics.reductions import running_medians
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.medians import median
from ckaudit.run.series import Series


@rule("LOSS013", severity="sev2", needs=[loss_part], unit="nats")
def discriminator_wins(
    parts: Series, *, max_kept: float = 0.01, max_share: float = 1e-4, min_points: int = 15
) -> Iterator[Hit | Skip]:
    """A discriminator tells all products of its generator from real ones.

    ## What it checks
    The rule compares the losses of a generator and its discriminator, from `min_points` steps with both on. All of these hold:

    - The discriminator's loss is nowhere below zero.
    - The discriminator's median loss over the last third is less than `max_kept` of its largest loss in the first tenth, or less
      than `max_share` of the generator's: it may have won before the first line.
    - The generator's median loss over the last third is no lower than its lowest loss in the first tenth.
    ## Why it matters
    While the game is open, neither loss goes to zero. A discriminator that is sure of everything has no gradient left, and no
    longer tells the generator which way is better.
    ## False alarms
    The loss of a critic (Wasserstein) is a distance and mostly below zero: it is not judged. A discriminator that is ahead for a
    while is caught up with again: only the end is judged.
    """
    if not {"generator", "discriminator"} <= set(parts.labels):
        yield Skip("not_applicable", "no losses of a generator and a discriminator are logged")
        return
    makes, tells = (parts.values[:, parts.places[name]] for name in ("generator", "discriminator"))
    rows = np.flatnonzero(np.isfinite(makes) & np.isfinite(tells))
    if len(rows) < min_points:
        yield Skip("too_few_points", f"{len(rows)} steps have both losses; {min_points} are needed")
        return
    makes, tells = makes[rows], tells[rows]
    first, late = slice(0, -(-len(rows) // 10)), slice(-(-2 * len(rows) // 3), None)
    begun = float(tells[first].max())
    limit = max(max_kept * begun, max_share * median(makes[late]))
    if tells.min() < 0 or median(tells[late]) >= limit or median(makes[late]) < makes[first].min():
        return
    low = running_medians(np.pad(tells, 2, mode="edge"), 5) < limit
    since = int(np.flatnonzero(~low)[-1]) + 1 if low[-1] and not low.all() else int(np.argmax(low))
    yield Hit.at(
        parts.steps[rows][since:],
        "sev2",
        f"the discriminator's loss ends at {{value:.2g}}, having begun at {begun:.3g}, and the generator's at "
        f"{median(makes[late]):.3g}: every product is told from a real one",
        where="discriminator",
        value=median(tells[late]),
        limit=limit,
        worst=-1,
    )
