"""ACT002: outputs of a module grow or shrink far beyond what they were."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.activations import activation_outlier_rate, activation_rms, residual_rms
from ckaudit.metrics.learnt import learnt_since
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.medians import over_past
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.series import Floats, Series
from ckaudit.run.spans import Span, spans


@rule("ACT002", severity="sev2", needs=[activation_rms], wants=[residual_rms, activation_outlier_rate, train_loss_raw], unit="1")
def activation_drift(
    rms: Series, stream: Series | None, outliers: Series | None, loss: Series | None, *,
    times: float = 8.0, history: int = 5, min_points: int = 2, warmup: int = 100, usual: float = 2.0, paid: float = 0.5,
    outlier_rate: float = 2.0,
) -> Iterator[Hit | Skip]:  # fmt: skip
    """Outputs of a module grow, shrink or hold outliers.

    ## What it checks
    The root mean square of each module's output over the median of its checkpoints before, `history` of them at least and none of
    the first `warmup` steps judged: `times` as large or as small at `min_points` checkpoints in a row (M21, D4.5; a rise by half
    in a hundred steps is to be watched, DR-1; lab: healthy streams at most 6). It is sev2 in the residual stream and a note
    elsewhere, for single branches come and go; and a note where the loss fell by `paid` of itself while the stream grew, since it
    was last at most `usual` times as large: it grew with what was learnt. A share of outliers over `outlier_rate` percent is
    noted (M22; lab: healthy at most 0.9).
    ## Why it matters
    Outputs that run away overflow in half precision and saturate whatever comes next; outputs that vanish carry nothing.
    ## False alarms
    Outputs grow several times over while a small initialization is learnt away: what counts is the past of the same
    module.
    """
    yield from too_few(rms, history + min_points)
    ratio = over_past(rms, history)
    late = (rms.steps > warmup)[:, None]
    grave = stream.labels if stream is not None else ()
    for span in spans(rms, (ratio > times) & late, min_points=min_points):
        is_grave = span.label in grave
        if is_grave and loss is not None:
            is_grave = learnt_since(loss, _last_usual(rms, span, ratio, usual), until=span.first) <= paid
        yield Hit.over(
            span, "sev2" if is_grave else "note",
            "outputs of {where} have grown to {value:.3g} times what they were; the limit is {limit:.0f}",
            badness=ratio, limit=times,
        )  # fmt: skip
    for span in spans(rms, (ratio < 1 / times) & late, min_points=min_points):
        yield Hit.over(
            span, "sev2" if span.label in grave else "note",
            "outputs of {where} have shrunk to {value:.2g} of what they were; the limit is {limit:.2g}",
            badness=-ratio, value=ratio, limit=1 / times,
        )  # fmt: skip
    if outliers is not None:
        for span in spans(outliers, outliers.values > outlier_rate, min_points=min_points):
            yield Hit.over(
                span, "note", "{value:.2g} % of the outputs of {where} are outliers", badness=outliers.values, limit=outlier_rate
            )


def _last_usual(rms: Series, span: Span, ratio: Floats, usual: float) -> int:
    """Return the last step before a span at which a module's outputs were hardly larger than before; the span's first if none."""
    rows = np.flatnonzero((rms.steps < span.first) & (ratio[:, span.column] <= usual))
    return int(rms.steps[rows[-1]]) if len(rows) else span.first
