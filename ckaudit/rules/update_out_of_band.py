"""MOVE002: an update is too large or too small for the weights it changes."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.weights import update_to_weight_global
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.series import Series, at
from ckaudit.run.spans import spans


@rule("MOVE002", severity="sev2", needs=[update_to_weight_global], wants=[learning_rate], unit="1", memory=3)
def update_out_of_band(
    ratio: Series, rate: Series | None, *, warmup: int = 100, lowest: float = 1e-5, highest: float = 1e-1, min_points: int = 3
) -> Iterator[Hit | Skip]:
    """An update is too large or too small for the weights it changes.

    ## What it checks
    The norm of one update over the norm of all weights (M11) against the band from `lowest` to `highest` (torchmortem
    uses the same), at `min_points` points in a row; not in the first `warmup` steps and not while the learning rate is zero.
    ## Why it matters
    Above the band a few steps replace the weights altogether; below it the run stands still.
    ## False alarms
    The first steps of a warm-up lie below the band and are not judged; nor is a decay to zero.
    """
    if not (ratio.steps > warmup).any():
        yield Skip("too_few_points", f"the first {warmup} steps are not judged, and the run has no more")
        return
    yield from too_few(ratio, min_points)
    on = np.ones(len(ratio.steps), bool) if rate is None else np.nan_to_num(at(rate, ratio.steps).values[:, 0], nan=1.0) > 0
    judged = ((ratio.steps > warmup) & on)[:, None]
    for span in spans(ratio, (ratio.values > highest) & judged, min_points=min_points):
        yield Hit.over(
            span, "sev2", "each update changes {value:.2g} of the weights; above {limit:.0e} they do not settle",
            badness=ratio.values, limit=highest,
        )  # fmt: skip
    for span in spans(ratio, (ratio.values < lowest) & judged, min_points=min_points):
        yield Hit.over(
            span, "sev2", "each update changes only {value:.2g} of the weights; below {limit:.0e} they stand still",
            badness=-ratio.values, value=ratio.values, limit=lowest,
        )  # fmt: skip
