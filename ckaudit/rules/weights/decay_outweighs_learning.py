"""WGT006: most of each update is weight decay."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.estimated_movement import cells_like
from ckaudit.metrics.loss import is_solved, train_loss_raw
from ckaudit.metrics.movement import weight_decay_to_update
from ckaudit.metrics.reductions import row_medians
from ckaudit.metrics.weights import update_to_weight
from ckaudit.rules.rule import FACTS, Hit, Skip, is_written_by_ckaudit, needs_one_of, rule, too_few
from ckaudit.run.series import Floats, Series, single
from ckaudit.run.spans import spans


@rule("WGT006", severity="sev2", needs=[], wants=[weight_decay_to_update, update_to_weight, train_loss_raw, FACTS], unit="1")
def decay_outweighs_learning(
    share: Series | None,
    updates: Series | None,
    loss: Series | None,
    facts: Manifest | None,
    *,
    max_decay_share: float = 0.2,
    min_taken_off: float = 0.1,
    min_points: int = 2,
) -> Iterator[Hit | Skip]:
    """Weight decay makes a large part of each update.

    ## What it checks
    What weight decay takes off a matrix in one update, over the length of that update. Decay is too large above `max_decay_share`
    of an update in the median matrix, at `min_points` checkpoints in a row, where all decay of the run takes more than
    `min_taken_off` off a weight.
    ## Why it matters
    Weights keep their size where decay balances what is learnt, which points in any direction. The share of decay is then the
    root of half of rate times decay (Kosson et al. 2024): 0.007 for a rate of 0.001 and a decay of 0.1. A fifth would take a rate
    times decay of 0.08: each weight forgets within a dozen steps, and the model answers ever more alike.
    ## False alarms
    A large share of decay may be harmless:

    - At the end of a schedule little is learnt, and decay shrinks with it, for both go by the rate (230 healthy trainings of 50
      families: 0.09 at most, of plain SGD after the loss had come to nothing).
    - Where an optimizer hardly moves anything, decay is much of that and takes nothing off: the run is not judged.
    - A step at which the loss is below a tenth of its first is not judged: once a task is solved, decay is all that is left.
    """
    if share is None:
        no_decay = Skip("not_applicable", "updates are recorded, and no weight decay in them")
        yield no_decay if updates is not None and is_written_by_ckaudit(facts) else needs_one_of(weight_decay_to_update)
        return
    share = share.recorded_rows()
    yield from too_few(share, min_points)
    middle = row_medians(np.where(share.finite, share.values, np.nan))
    if _taken_off(share, middle, updates) < min_taken_off:
        return
    series = single("median matrix", "1", share.steps, middle)
    is_much = (series.values > max_decay_share) & ~is_solved(loss, series.steps)
    for span in spans(series, is_much, min_points=min_points):
        yield Hit.over(
            span,
            "sev2",
            "weight decay alone makes {value:.0%} of the length of an update in {where}; where weights and decay are in balance "
            "it is a few percent, and {limit:.0%} is much",
            badness=series.values,
            limit=max_decay_share,
        )


def _taken_off(share: Series, middle: Floats, updates: Series | None) -> float:
    """Return the total decay of a weight of the median matrix over a run, as a negative logarithm."""
    if updates is None:
        return np.inf
    sizes = row_medians(np.where(np.isfinite(share.values), cells_like(share, updates), np.nan))
    return float(np.nansum(middle * sizes * np.diff(share.steps, prepend=0)))
