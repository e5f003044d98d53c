"""AMP001: the loss scaler overflows."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.gradients import grad_global_norm
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.optimizer import overflow_rate, share_of_last
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.overcome import overcome
from ckaudit.run.series import Series, at
from ckaudit.run.spans import spans


@rule("AMP001", severity="sev0", needs=[], wants=[overflow_rate, grad_global_norm, train_loss_raw], unit="%", memory=150)
def overflow(
    rate: Series | None,
    norm: Series | None,
    loss: Series | None,
    *,
    warmup: int = 100,
    high: float = 5.0,
    storm: float = 10.0,
    long: int = 200,
    min_points: int = 5,
    low: float = 1.0,
    window: int = 100,
    min_share: int = 10,
) -> Iterator[Hit | Skip]:
    """The loss scaler overflows.

    ## What it checks
    The share of the last steps whose gradients overflowed, after `warmup` steps (M14: about zero by then). Above `high`
    percent at `min_points` points in a row is sev1, above `low` it is noted; a rate that stays above `storm` for `long` steps
    is an overflow storm, sev0 (SEV0-4; the catalogue's bad example stays between 10 and 15 %, its good one falls to 0). In a
    log that tells of no scaler, gradients that were not finite count where the loss is, and finite ones come later: those
    were left out. Their share is of the last `window` points, as of the other rate, and judged from `min_share` on.
    ## Why it matters
    Every overflow is an update that is not taken, and a scale that keeps failing hides gradients that are truly infinite.
    ## False alarms
    A scaler that starts high overflows in its first steps while it finds its scale, and about once in 2,000 steps after.
    """
    rate = rate or _left_out(norm, loss, window, min_share)
    if rate is None:
        yield Skip("not_recorded", "needs overflow_rate")
        return
    late = rate.steps > warmup
    if not late.any():
        yield Skip("too_few_points", f"the first {warmup} steps are not judged, and the run has no more")
        return
    judged = late[:, None]
    told = np.zeros(rate.values.shape, bool)
    for span in spans(rate, (rate.values > high) & judged, min_points=min_points):
        is_storm = span.last - span.first >= long and bool((rate.values[span.rows, 0] > storm).mean() > 0.9)
        told[span.rows] = True
        yield Hit.over(
            span, "sev0" if is_storm else "sev1",
            "up to {value:.0f} % of the last steps overflowed, long after the scaler should have found its scale; usual is none",
            badness=rate.values, limit=high,
        )  # fmt: skip
    for span in spans(rate, (rate.values > low) & judged & ~told, min_points=min_points):
        yield Hit.over(span, "note", "up to {value:.1f} % of the last steps overflowed", badness=rate.values, limit=low)


def _left_out(norm: Series | None, loss: Series | None, window: int, min_points: int) -> Series | None:
    """Return the share of the last gradients that were left out, in percent; None where none was, or nobody can tell."""
    if norm is None or loss is None:
        return None
    beside = at(loss, norm.steps)
    hits = overcome(norm) & (beside.age == 0) & np.isfinite(beside.values) & (beside.values != 0)
    if not hits.any():
        return None
    return share_of_last(norm, hits, window=window, min_points=min_points).mapped(lambda share: 100 * share, norm.name, "%")
