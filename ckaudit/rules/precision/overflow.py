"""AMP001: the loss scaler overflows."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.gradients import grad_global_norm
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.optimizer import loss_scale, overflow_rate, overflows, share_of_last, skipped_updates
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.cancelled_gradients import never_applied
from ckaudit.run.series import Floats, Mask, Series, at, empty
from ckaudit.run.spans import spans

WINDOW = 100
"""Number of points over which a rate is taken, as in the metric."""

MIN_WINDOW = 10
"""Minimum number of points for a rate in a log without a scaler."""

LOW_SCALE = 1024
"""A scale up to here is low: networks needed 8 to 32,768 (Micikevicius et al. 2018), and searches begin at 65,536 and above."""


@rule(
    "AMP001",
    severity="sev0",
    needs=[],
    unit="%",
    memory=150,
    wants=[overflow_rate, skipped_updates, loss_scale, grad_global_norm, train_loss_raw],
)
def overflow(
    rate: Series | None,
    skipped: Series | None,
    scale: Series | None,
    norm: Series | None,
    loss: Series | None,
    *,
    warmup: int = 100,
    sev1_rate: float = 5.0,
    storm_rate: float = 10.0,
    storm_steps: int = 200,
    min_points: int = 5,
    note_rate: float = 1.0,
) -> Iterator[Hit | Skip]:
    """The loss scaler overflows.

    ## What it checks
    The share of the last steps whose gradients overflowed (M14: about zero after warm-up), after `warmup` steps or, in a shorter
    log, after its first third:

    - A rate above `sev1_rate` percent at `min_points` points in a row, or at all but one of fewer, is sev1.
    - A rate above `note_rate` percent for as long is noted.
    - A rate that stays above `storm_rate` percent for `storm_steps` steps is an overflow storm, sev0 (SEV0-4; the catalogue's bad
      example stays between 10 and 15 %, its good one falls to 0).
    - Overflows that a log of less than three windows reports one by one are counted after the warm-up.
    - A loss scale that falls to an eighth after the first third, and goes on falling, collapses (M13): sev1.
    - In a log without a scaler, gradients that were not finite count where the loss is finite and finite gradients come later.
    ## Why it matters
    Every overflow is an update that is not taken, and a scale that keeps failing hides gradients that are truly infinite.
    ## False alarms
    A scaler that starts high overflows in its first steps while it finds its scale, and about once in 2,000 steps after that.
    Overflows that begin with the log and end are noted only. A scale that falls within the first `warmup` steps is judged only
    where it gets low.
    """
    rate = rate or _left_out(norm, loss)
    if rate is None:
        if skipped is None and scale is None:
            yield Skip("not_recorded", "needs overflow_rate, skipped_updates or loss_scale")
            return
        rate = empty("overflow_rate", "%")
    if rate and not (rate.finite.sum() > 2):
        yield Skip("too_few_points", f"{rate.points} points of {rate.name}; 3 are needed")
    source, hits = overflows(skipped or empty("skipped_updates"), scale or empty("loss_scale"))
    singly = len(source.steps) < 3 * WINDOW
    counted = _counted(source, hits, warmup, sev1_rate, storm_rate, storm_steps) if singly else None
    if (hit := counted or _collapse(scale, warmup)) is not None:
        yield hit
    more = _is_more(rate, source, hits) if singly else np.ones(rate.values.shape, bool)
    yield from _rates(rate, more, warmup, sev1_rate, storm_rate, storm_steps, min_points, note_rate)


def _rates(
    rate: Series, judged: Mask, warmup: int, high: float, storm: float, long: int, min_points: int, low: float
) -> Iterator[Hit]:
    """Yield the stretches in which a rate is high, or noted; only `judged` cells count, shape (T, 1)."""
    known = np.flatnonzero(rate.finite.any(axis=1))
    if len(known) < 3:
        return
    start = int(known[min(int((rate.steps[known] <= warmup).sum()), len(known) // 3)])
    judged = judged & (np.arange(len(rate.steps)) >= start)[:, None]
    needed = min(min_points, max(2, int(judged.any(axis=1).sum()) - 1))
    explained = np.zeros(rate.values.shape, bool)
    for span in spans(rate, (rate.values > high) & judged, min_points=needed):
        begins = span.rows[0] == start and bool(np.nanmax(rate.values[: start + 1]) > high)
        if begins and span.rows[-1] != known[-1]:
            continue
        is_storm = span.last - span.first >= long and bool((rate.values[span.rows, 0] > storm).mean() > 0.9)
        explained[span.rows] = True
        yield Hit.over(
            span,
            "sev0" if is_storm else "sev1",
            "up to {value:.0f} % of the last steps overflowed, long after the scaler should have found its scale; usual is none",
            badness=rate.values,
            limit=high,
        )
    for span in spans(rate, (rate.values > low) & judged & ~explained, min_points=needed):
        yield Hit.over(span, "note", "up to {value:.1f} % of the last steps overflowed", badness=rate.values, limit=low)


def _counted(source: Series, hits: Floats, warmup: int, high: float, storm: float, long: int) -> Hit | None:
    """Return the hit of single overflows after the warm-up: three at least, and at more than `high` percent of the points."""
    start = max(min(int((source.steps <= warmup).sum()), len(source.steps) // 3), _end_of_search(np.asarray(hits.any(axis=1))))
    late = np.flatnonzero(hits[start:].any(axis=1)) + start
    share = 100 * float(hits[start:].max(axis=1, initial=0.0).sum()) / max(1, len(source.steps) - start)
    is_search = source.name == "loss_scale" and source.steps[-1] <= warmup if len(source.steps) else True
    if len(late) < 3 or share <= high or is_search:
        return None
    first, last = int(source.steps[late[0]]), int(source.steps[late[-1]])
    return Hit.at(
        source.steps[late],
        "sev0" if share > storm and last - first >= long else "sev1",
        "{value:.0f} % of the logged steps overflowed after the scaler should have found its scale; usual is none",
        where="overflow_rate",
        value=share,
        limit=high,
        worst=-1,
    )


def _end_of_search(hits: Mask) -> int:
    """Return the row at which the first overflows of a log pause for a tenth of it; 0 where that is after its first half."""
    rows = np.flatnonzero(hits)
    pauses = np.flatnonzero(np.diff(rows, append=len(hits)) > max(3, len(hits) // 10))
    end = int(rows[pauses[0]]) + 1 if len(pauses) else 0
    return end if end <= len(hits) // 2 else 0


def _collapse(scale: Series | None, warmup: int) -> Hit | None:
    """Return where the loss scale falls to an eighth of what it was after a third of the log, and is still falling."""
    rows = np.empty(0, np.int64) if scale is None else np.flatnonzero(scale.finite[:, 0])
    if scale is None or len(rows) < 3:
        return None
    values: Floats = scale.values[rows, 0]
    third = len(rows) // 3
    usual, end = float(values[third]), float(values[-1])
    goes_on = end < values[-max(1, third) - 1] and end == values.min()
    if end > usual / 8 or not goes_on or (scale.steps[rows[-1]] <= warmup and end > LOW_SCALE):
        return None
    first = third + int(np.argmax(values[third:] < usual))
    return Hit.at(
        scale.steps[rows[first:]],
        "sev1",
        "the loss scale collapses: {value:.4g}, from {limit:.4g}, and it goes on falling",
        where="loss_scale",
        value=end,
        limit=usual,
        worst=-1,
    )


def _is_more(rate: Series, source: Series, hits: Floats) -> Mask:
    """Return which cells of a rate exceed what the single overflows beside them add up to: the trainer logged such a rate."""
    if not source:
        return np.ones(rate.values.shape, bool)
    counted = at(share_of_last(source, hits, window=WINDOW, min_points=MIN_WINDOW), rate.steps).values
    return np.asarray(rate.values > 100 * np.nan_to_num(counted) + 0.5)


def _left_out(norm: Series | None, loss: Series | None) -> Series | None:
    """Return the share of the last gradients that were never applied, in percent; None where all were, or this is unknown."""
    if norm is None or loss is None:
        return None
    beside = at(loss, norm.steps)
    known = (beside.age == 0) & np.isfinite(beside.values) & (beside.values != 0)
    hits = never_applied(norm) & known[:, :1]
    if not hits.any():
        return None
    return share_of_last(norm, hits, window=WINDOW, min_points=MIN_WINDOW).mapped(lambda share: 100 * share, norm.name, "%")
