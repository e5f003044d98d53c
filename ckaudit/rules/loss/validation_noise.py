"""EVL001: two evaluations of the same weights differ."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.loss import val_loss
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.weights import update_to_weight_global
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.series import Mask, Series, Steps


@rule("EVL001", severity="sev2", needs=[val_loss, learning_rate], wants=[update_to_weight_global], unit="1")
def validation_noise(
    val: Series, rate: Series, moved: Series | None, *, max_relative_difference: float = 1e-4, min_pairs: int = 2
) -> Iterator[Hit | Skip]:
    """Two evaluations of the same weights differ.

    ## What it checks
    The rule compares evaluations between which no weight can have changed: the learning rate, or every recorded update, was zero
    at every step in between. Where at least `min_pairs` of such pairs differ by more than `max_relative_difference` of their
    value, the evaluation itself is not repeatable (arithmetic in half precision differs by less).
    ## Why it matters
    Dropout is still on, or each evaluation takes other data. A difference between two checkpoints may then be chance (D1.6, M53).
    ## False alarms
    Most runs have no such evaluations, and are not judged.
    """
    yield from too_few(val, 2)
    known = np.flatnonzero(val.finite[:, 0])
    steps = val.steps[known]
    still = _still(rate, steps)
    if moved is not None:
        still |= _still(moved, steps, with_start=True)
    pairs: Steps = np.stack([known[:-1], known[1:]], axis=1)[still]
    if not len(pairs):
        yield Skip("not_applicable", "weights changed between all evaluations")
        return
    if len(pairs) < min_pairs:
        yield Skip("too_few_points", f"{len(pairs)} pairs of evaluations of the same weights; {min_pairs} are needed")
        return
    before, after = val.values[pairs[:, 0], 0], val.values[pairs[:, 1], 0]
    off = np.abs(after - before) / np.maximum(np.abs(before), 1e-12)
    if (off > max_relative_difference).sum() < min_pairs:
        return
    worst = int(np.argmax(off))
    differ = pairs[off > max_relative_difference, 1]
    yield Hit(
        severity="sev2",
        where=val.labels[0],
        first=int(val.steps[differ[0]]),
        last=int(val.steps[differ[-1]]),
        worst=int(val.steps[pairs[worst, 1]]),
        value=float(off[worst]),
        limit=max_relative_difference,
        points=len(differ),
        message="two evaluations of the same weights differ by {value:.2g} of their value; the limit is {limit:.0e}",
    )


def _still(series: Series, steps: Steps, *, with_start: bool = False) -> Mask:
    """Return whether a series is zero wherever it was recorded between each two neighbours among `steps`.

    Args:
        series: What moves the weights.
        steps: Rising, shape (E,).
        with_start: Whether it must be zero at the first of the two as well, for then it was recorded there.
    """
    known = series.finite[:, 0]
    places = np.searchsorted(series.steps[known], steps, side="right")
    nonzero = np.concatenate(([0], np.cumsum(series.values[known, 0] != 0)))
    still = (np.diff(places) > 0) & (np.diff(nonzero[places]) == 0)
    if with_start:
        at_start = np.isin(steps[:-1], series.steps[known][series.values[known, 0] == 0])
        still &= at_start
    return np.asarray(still)
