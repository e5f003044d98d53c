"""MOVE007: weights are kept in half precision, and most of what an update asks for rounds to none."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.movement import lost_update_share
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.reductions import row_medians
from ckaudit.metrics.words import element_type
from ckaudit.rules.rule import Hit, Skip, needs_one_of, rule, too_few
from ckaudit.run.column_builder import HALF_TYPES
from ckaudit.run.series import Series, at, single
from ckaudit.run.spans import spans


@rule("MOVE007", severity="sev2", needs=[], wants=[lost_update_share, learning_rate, element_type], unit="1")
def updates_rounded_away(
    lost: Series | None,
    rate: Series | None,
    types: Series | None,
    *,
    max_lost_share: float = 0.5,
    min_rate_share: float = 0.3,
    min_points: int = 2,
) -> Iterator[Hit | Skip]:
    """Weights are kept in half precision, and most of what an update asks for rounds to none.

    ## What it checks
    The share of the elements that have a gradient and that an update leaves as they were. Too many updates are lost above
    `max_lost_share` in the median matrix, at `min_points` checkpoints in a row at which the learning rate is above
    `min_rate_share` of its peak.
    ## Why it matters
    An element of 0.02 in bfloat16 has neighbours 0.0001 away. A rate below half of that moves no element of this size, step after
    step: large weights stand still, small ones learn, and the curves only look slow.
    ## False alarms
    Towards the end of a schedule every update is small: those checkpoints are not judged. A training that rounds stochastically,
    or keeps a float32 copy for the optimizer, changes most elements, or none of those that are looked at.
    """
    if lost is None:
        yield _unknown(types)
        return
    known = lost.recorded_rows()
    steps = known.steps
    if rate is not None and rate.finite.any():
        rates = np.nan_to_num(at(rate, steps).values[:, 0], nan=np.inf)
        keep = rates > min_rate_share * rate.values[rate.finite].max()
    else:
        keep = np.ones(len(steps), bool)
    middle = row_medians(np.where(known.finite, known.values, np.nan))[keep]
    series = single("median matrix", "1", steps[keep], middle)
    yield from too_few(series, min_points)
    for span in spans(series, series.values > max_lost_share, min_points=min_points):
        yield Hit.over(
            span,
            "sev2",
            "an update leaves {value:.0%} of the median matrix as it was, though it has a gradient: it rounds to none",
            badness=series.values,
            limit=max_lost_share,
        )


def _unknown(types: Series | None) -> Skip:
    """Return why nothing can be lost, where weights are known to be kept in more than half precision."""
    weights = types.only(lambda label: label.startswith("weights/")) if types is not None else None
    known = weights.values[weights.finite] if weights is not None else np.empty(0)
    if known.size and not np.isin(known, HALF_TYPES).any():
        return Skip("not_applicable", "weights are kept in single precision, where no update is lost")
    return needs_one_of(lost_update_share)
