"""CURV001: the loss becomes sharp in one jump."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.landscape import curvature_trace_est
from ckaudit.metrics.reductions import over_past
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.series import Series
from ckaudit.run.spans import spans


@rule("CURV001", severity="sev2", needs=[curvature_trace_est], unit="1")
def curvature_jump(curvature: Series, *, max_ratio: float = 5.0, history: int = 5) -> Iterator[Hit | Skip]:
    """The curvature of the loss rises in one jump.

    ## What it checks
    The trace of the Hessian, divided by the median of the values before it, `history` of them at least. A ratio over `max_ratio`
    means that the valley has become sharp (M18; the estimate itself is right within a factor of two, so five is no chance).
    ## Why it matters
    Updates that fitted the old curvature overshoot the new one: a learning rate that was right is too high now (TRI-2).
    ## False alarms
    In healthy runs curvature rises slowly until the learning rate limits it: that is no jump.
    """
    yield from too_few(curvature, history + 1)
    ratio = over_past(curvature, history)
    for span in spans(curvature, np.nan_to_num(ratio) > max_ratio):
        yield Hit.over(
            span,
            "sev2",
            "the curvature of the loss is {value:.3g} times what it was; the limit is {limit:.0f}",
            badness=ratio,
            limit=max_ratio,
        )
