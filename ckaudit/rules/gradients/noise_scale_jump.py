"""GRAD008: the gradient noise scale changes in one jump."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.landscape import grad_noise_scale
from ckaudit.metrics.reductions import over_past
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.series import Series
from ckaudit.run.spans import spans


@rule("GRAD008", severity="sev2", needs=[grad_noise_scale], unit="1")
def noise_scale_jump(noise: Series, *, max_ratio: float = 10.0, history: int = 5, min_points: int = 2) -> Iterator[Hit | Skip]:
    """The gradient noise scale changes in one jump.

    ## What it checks
    The gradient noise scale, divided by the median of the values before it, `history` of them at least. Where it is `max_ratio`
    times as large or as small at `min_points` points in a row, the problem is another one than before (M16).
    ## Why it matters
    A batch size that was right is too small now, or wasted. If nobody changed the data, something else changed.
    ## False alarms
    The scale grows as the loss falls, but over the whole run, and by less than that from one measurement to the next. Single
    estimates are noisy, so two in a row are needed.
    """
    yield from too_few(noise, history + min_points)
    ratio = over_past(noise, history)
    for span in spans(noise, np.nan_to_num(ratio) > max_ratio, min_points=min_points):
        yield Hit.over(
            span,
            "sev2",
            "the gradient noise scale is {value:.3g} times what it was; the limit is {limit:.0f}",
            badness=ratio,
            limit=max_ratio,
        )
    for span in spans(noise, np.nan_to_num(ratio, nan=1.0) < 1 / max_ratio, min_points=min_points):
        yield Hit.over(
            span,
            "sev2",
            "the gradient noise scale is {value:.2g} of what it was; the limit is {limit:.2g}",
            badness=-ratio,
            value=ratio,
            limit=1 / max_ratio,
        )
