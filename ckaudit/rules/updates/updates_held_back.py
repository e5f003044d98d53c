"""MOVE006: under Adam, matrices do not move as far as the learning rate asks."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.gradients import grad_global_norm
from ckaudit.metrics.movement import step_over_rate
from ckaudit.metrics.reductions import row_medians
from ckaudit.metrics.words import optimizer_adapts
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.series import Floats, Series, Steps, at, single
from ckaudit.run.spans import spans


@rule("MOVE006", severity="sev2", needs=[step_over_rate, optimizer_adapts, grad_global_norm], unit="1", memory=3)
def updates_held_back(
    step: Series,
    adapts: Series,
    gradient: Series,
    *,
    max_bound_share: float = 0.05,
    min_gradient_share: float = 0.3,
    warmup: int = 20,
    min_points: int = 3,
) -> Iterator[Hit | Skip]:
    """Under Adam, matrices do not move as far as the learning rate asks.

    ## What it checks
    How far an element of the median matrix moves in one update of Adam, over the learning rate:

    - The element moves by less than `max_bound_share` of the rate at `min_points` checkpoints in a row after `warmup` steps.
    - Under Adam an element moves by a fifth to the whole of the rate, whatever the size of the gradient, as long as the gradient
      is what it was (Kingma & Ba 2015, section 2.1).
    - In 230 healthy trainings of 50 families the median matrix moves by 0.08 and more of the rate over a run; an epsilon of 0.1
      leaves at most 0.03.
    - Checkpoints whose gradient norm is below `min_gradient_share` of its root mean square so far are not judged.
    ## Why it matters
    Something beside the second moment outweighs it, mostly an epsilon: the run learns at a fraction of the rate that was chosen
    for it, and the curves only look slow.
    ## False alarms
    After a gradient out of all proportion, the second moment remembers it for a thousand steps: those are the steps that are not
    judged.
    """
    if not (at(adapts, step.steps).values == 1).any():
        yield Skip("not_applicable", "the optimizer is not a variant of Adam")
        return
    values = np.nan_to_num(row_medians(np.where(step.finite & (step.values > 0), step.values, np.nan)))
    judged = (values > 0) & (step.steps > warmup) & (_of_usual(gradient, step.steps) >= min_gradient_share)
    series = single("median matrix", "1", step.steps[judged], values[judged])
    yield from too_few(series, min_points)
    for span in spans(series, series.values < max_bound_share, min_points=min_points):
        yield Hit.over(
            span,
            "sev2",
            "the median matrix moves by {value:.2g} of the learning rate per element; Adam moves it by 0.2 "
            "and more, whatever the gradient",
            badness=-series.values,
            value=series.values,
            limit=max_bound_share,
        )


def _of_usual(gradient: Series, steps: Steps) -> Floats:
    """Return the gradient norm at steps over its root mean square up to there; NaN where it is not known."""
    known = np.where(gradient.finite[:, 0], gradient.values[:, 0], np.nan)
    squares, count = np.nancumsum(known**2), np.cumsum(np.isfinite(known))
    with np.errstate(all="ignore"):
        usual = single("usual gradient", "1", gradient.steps, np.sqrt(squares / count))
        return np.asarray(at(gradient, steps).values[:, 0] / at(usual, steps).values[:, 0])
