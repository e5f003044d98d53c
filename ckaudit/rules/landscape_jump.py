"""CURV001: the landscape of the loss changes in one jump."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.landscape import curvature_trace_est, grad_noise_scale
from ckaudit.metrics.medians import over_past
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.series import Series
from ckaudit.run.spans import spans


@rule("CURV001", severity="sev2", needs=[], wants=[curvature_trace_est, grad_noise_scale], unit="1")
def landscape_jump(
    curvature: Series | None, noise: Series | None, *, sharp: float = 5.0, jump: float = 10.0, history: int = 5
) -> Iterator[Hit | Skip]:
    """Curvature or gradient noise change in one jump.

    ## What it checks
    The trace of the Hessian over the median of the values before, `history` at least: over `sharp` the valley has become
    sharp (M18). The gradient noise scale over the same median, or under it: by `jump` it is another problem than before
    (M16).
    ## Why it matters
    Updates that fitted the old curvature overshoot the new one; a batch that was right is too small, or wasted.
    ## False alarms
    Both are estimates, within a factor of two of themselves; both change slowly in a healthy run, by far less than that.
    """
    if curvature is None and noise is None:
        yield Skip("not_recorded", "needs curvature_trace_est or grad_noise_scale")
        return
    few = []
    for series, limit, both, what in (
        (curvature, sharp, False, "the curvature of the loss"), (noise, jump, True, "the gradient noise scale"),
    ):  # fmt: skip
        if series is None:
            continue
        if series.points <= history:
            few.append(f"{series.points} points of {series.name}")
            continue
        ratio = over_past(series, history)
        for span in spans(series, np.nan_to_num(ratio) > limit):
            message = what + " is {value:.3g} times what it was; the limit is {limit:.0f}"
            yield Hit.over(span, "sev2", message, badness=ratio, limit=limit)
        for span in spans(series, both & (np.nan_to_num(ratio, nan=1.0) < 1 / limit)):
            message = what + " is {value:.2g} of what it was; the limit is {limit:.2g}"
            yield Hit.over(span, "sev2", message, badness=-ratio, value=ratio, limit=1 / limit)
    if few:
        yield Skip("too_few_points", f"{', '.join(few)}; more than {history} are needed")
