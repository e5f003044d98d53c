"""ACT002: outputs of a module grow or shrink far beyond what they were."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ckaudit.metrics.activations import activation_outlier_rate, activation_rms, activation_std, largest_output, residual_rms
from ckaudit.metrics.gradients import gradient_norm
from ckaudit.metrics.loss import learnt_since, train_loss_raw
from ckaudit.metrics.reductions import over_past
from ckaudit.rules.rule import Hit, Skip, lasting_spans, needs_one_of, rule, too_few
from ckaudit.run.medians import median, thirds_of_steps
from ckaudit.run.series import Floats, Mask, Series
from ckaudit.run.spans import Span, spans


@rule(
    "ACT002",
    severity="sev2",
    needs=[],
    wants=[activation_rms, residual_rms, activation_std, activation_outlier_rate, train_loss_raw, gradient_norm],
    unit="1",
)
def activation_drift(
    rms: Series | None,
    stream: Series | None,
    std: Series | None,
    outliers: Series | None,
    loss: Series | None,
    gradient: Series | None,
    *,
    max_ratio: float = 8.0,
    runaway_ratio: float = 4.0,
    warmup: int = 100,
    usual_ratio: float = 2.0,
    paid_loss_fall: float = 0.25,
    max_outlier_rate: float = 2.0,
) -> Iterator[Hit | Skip]:
    """Outputs of a module grow, shrink or hold outliers.

    ## What it checks
    The rule divides the root mean square of each module's output by the median of its earlier checkpoints, without those of the
    first tenth of its steps: beside these, an output that grows with the steps would always have grown many times over.

    - The first third of the run is left out, or its first `warmup` steps where that is shorter: at first all outputs grow.
    - An output `max_ratio` times as large or as small, at two checkpoints in a row (in a run of fewer than six, at the last one),
      is sev2 in the residual stream and a note elsewhere, for single branches come and go (M21, D4.5).
    - In the lab and 19 families, healthy streams come to 4.5 times at most, branches to 6.4. A layer with a weight of its own is
      a branch, as the last of a plain stack, whose outputs grow up to the targets.
    - A module runs away where its level, or its spread, in the last third of the steps is over `runaway_ratio` times that in the
      middle third. In the stream that is sev2.
    - In any other module a runaway is sev2 from `max_ratio` on, where it ends above `usual_ratio` times the largest output of any
      module before: what began small may come to the size of the others. Else it is a note.
    - Outputs that grow with the steps come to 1.7 times by that measure, with their square to 2.8.
    - Healthy modules, after `warmup` steps, come to 1.4 times in streams, and to 4.4 in branches before a model groks. A rise by
      half in a hundred steps is to be watched (DR-1).
    - Growth in the stream is a note where the loss fell by `paid_loss_fall` of itself meanwhile, since the output was last at
      most `usual_ratio` times as large: it grew with what was learnt.
    - A share of outliers over `max_outlier_rate` percent is a note (M22; lab: healthy at most 0.9).
    ## Why it matters
    Outputs that run away overflow in half precision and saturate whatever comes next. Outputs that vanish carry nothing.
    ## False alarms
    Outputs grow several times over while a small initialization is learnt away: only the module's own past counts.
    """
    if outliers is not None:
        yield from _outliers(outliers, max_outlier_rate)
    if rms is None:
        if outliers is None:
            yield needs_one_of(activation_rms, activation_outlier_rate)
        return
    yield from too_few(rms, 3)
    ratio = over_past(rms, 1, reach=0.1)
    settled = (rms.steps > min(warmup, rms.steps[-1] / 3))[:, None] & (np.arange(len(rms.steps)) >= 2)[:, None]
    streams = {*stream.labels} - _single_layers(gradient) if stream is not None else set()
    sizes = [series for series in (rms, std) if series is not None and rms.steps[-1] > warmup]
    runaways = {label: course for size in sizes for label, course in _runaways(size, runaway_ratio).items()}
    for span in lasting_spans(rms, (ratio > max_ratio) & settled):
        is_serious = span.label in streams
        if is_serious and loss is not None:
            is_serious = learnt_since(loss, _last_usual(rms, span, ratio, usual_ratio), until=span.first) <= paid_loss_fall
        if span.label in streams:
            runaways.pop(span.label, None)
        elif span.label in runaways:
            continue
        yield Hit.over(
            span,
            "sev2" if is_serious else "note",
            "outputs of {where} have grown to {value:.3g} times what they were; the limit is {limit:.0f}",
            badness=ratio,
            limit=max_ratio,
        )
    for label, course in runaways.items():
        has_learnt = loss is not None and learnt_since(loss, course.first, until=course.last) > paid_loss_fall
        is_far = course.ratio >= max_ratio and course.over_all > usual_ratio
        is_serious = (label in streams or is_far) and not has_learnt
        yield _runaway(label, course, runaway_ratio, is_serious=is_serious)
    yield from _shrunk(rms, ratio, settled, streams, max_ratio)


def _shrunk(rms: Series, ratio: Floats, settled: Mask, streams: set[str], max_ratio: float) -> Iterator[Hit]:
    """Yield outputs that have become small beside what they were."""
    for span in lasting_spans(rms, (ratio < 1 / max_ratio) & settled):
        yield Hit.over(
            span,
            "sev2" if span.label in streams else "note",
            "outputs of {where} have shrunk to {value:.2g} of what they were; the limit is {limit:.2g}",
            badness=-ratio,
            value=ratio,
            limit=1 / max_ratio,
        )


def _single_layers(gradient: Series | None) -> set[str]:
    """Return the modules with a weight of their own: layers of a plain stack without a residual stream."""
    return {name.removesuffix(".weight") for name in gradient.labels} if gradient is not None else set()


class _Runaway(NamedTuple):
    """First and last step of growing outputs; ratios of their end level to the middle third's and to any module's largest."""

    first: int
    last: int
    ratio: float
    over_all: float


def _runaway(label: str, course: _Runaway, limit: float, *, is_serious: bool) -> Hit:
    """Return the hit of a module whose outputs run away in the last third of the run."""
    return Hit(
        severity="sev2" if is_serious else "note",
        where=label,
        first=course.first,
        last=course.last,
        worst=course.last,
        value=course.ratio,
        limit=limit,
        badness=course.ratio,
        points=3,
        message="outputs of {where} run away: {value:.3g} times as large in the last third of the run as before it",
    )


def _outliers(outliers: Series, max_rate: float) -> Iterator[Hit]:
    """Yield the modules whose share of outliers, in percent, is too high at two checkpoints in a row."""
    for span in spans(outliers, outliers.values > max_rate, min_points=2):
        yield Hit.over(
            span, "note", "{value:.2g} % of the outputs of {where} are outliers", badness=outliers.values, limit=max_rate
        )


def _runaways(sizes: Series, limit: float) -> dict[str, _Runaway]:
    """Return the course of each module whose median in the last third is over `limit` times that in the middle third."""
    courses = {}
    columns = _grown(sizes, limit)
    largest = largest_output(sizes) if columns else 0.0
    for column in columns:
        label = sizes.labels[column]
        rows = np.flatnonzero(sizes.finite_in(column))
        if len(rows) < 3:
            continue
        middle, end = (rows[part] for part in thirds_of_steps(sizes.steps[rows])[1:])
        before, after = (median(sizes.values[part, column]) for part in (middle, end))
        if before > 0 and after > limit * before:
            still_low = np.flatnonzero(sizes.values[rows, column] <= limit / 2 * before)
            first = rows[min(int(still_low[-1]) + 1, len(rows) - 1)]
            over_all = after / largest if largest > 0 else np.inf
            courses[label] = _Runaway(int(sizes.steps[first]), int(sizes.steps[rows[-1]]), after / before, over_all)
    return courses


def _grown(sizes: Series, limit: float) -> list[int]:
    """Return the columns that may have run away: those whose levels did where every cell is finite, else all."""
    if not sizes.finite.all() or len(sizes.steps) < 3:
        return [*range(len(sizes.labels))]
    middle, end = (sizes.values[part] for part in thirds_of_steps(sizes.steps)[1:])
    return np.flatnonzero(np.median(end, axis=0) > limit * np.median(middle, axis=0)).tolist()


def _last_usual(rms: Series, span: Span, ratio: Floats, usual: float) -> int:
    """Return the last step before a span at which the ratio was at most `usual`; the span's first step if there is none."""
    rows = np.flatnonzero((rms.steps < span.first) & (ratio[:, span.column] <= usual))
    return int(rms.steps[rows[-1]]) if len(rows) else span.first
