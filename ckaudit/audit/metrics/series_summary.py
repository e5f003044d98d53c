"""A series in one line: its last value, where it is extreme, whether it rises, and its shape in a few points."""

import numpy as np
from msgspec import Struct

from ckaudit.audit.metrics.measure import Measured
from ckaudit.audit.pictures import shape_preserving
from ckaudit.contract.schema.metrics import Trend
from ckaudit.contract.schema.numbers import Number, takes_any_numbers, to_word
from ckaudit.metrics.trend import theil_sen
from ckaudit.run.series import Floats, Series, Steps

SHAPE = 24  # points of a shape: as many columns as a table can spare


class Outline(Struct, frozen=True):
    """One label of one metric.

    Attributes:
        label: Tensor, block, head or slice.
        last: Last recorded value.
        step: Its step.
        trend: Of the second half of its points; None: too few to tell.
        shape: At most `SHAPE` of its values, spikes among them.
        points: Recorded points.
    """

    label: str
    last: Number
    step: int
    trend: Trend | None
    shape: tuple[Number, ...]
    points: int


def extreme(measured: Measured) -> Outline:
    """Return the label whose last value is the worst, as the metric has it; one that is not finite is worse than all."""
    return _outline(measured.series, _worst_first(measured)[0])


def labels(measured: Measured, *, max_labels: int | None) -> list[Outline]:
    """Return the labels, worst last value first, `max_labels` of them at most."""
    return [_outline(measured.series, column) for column in _worst_first(measured)[:max_labels]]


def _worst_first(measured: Measured) -> list[int]:
    if measured.worst == "first":
        return list(range(len(measured.series.labels)))
    rows = _last_rows(measured.series)
    last = measured.series.values[rows, np.arange(len(rows))]
    rank = last if measured.worst == "low" else -np.abs(last)
    order: list[int] = np.argsort(np.where(np.isfinite(last), rank, -np.inf), kind="stable").tolist()
    return order


def _last_rows(series: Series) -> Steps:
    """Return the row of each label's last recorded cell, shape (P,)."""
    return np.asarray(len(series.steps) - 1 - np.argmax(series.recorded[::-1], axis=0), np.int64)


@takes_any_numbers
def _outline(series: Series, column: int) -> Outline:
    rows = np.flatnonzero(series.recorded[:, column])
    steps, values = series.steps[rows], series.values[rows, column]
    shape = values[shape_preserving(values, SHAPE)].tolist()
    return Outline(
        label=series.labels[column],
        last=to_word(float(values[-1])),
        step=int(steps[-1]),
        trend=trend_of(steps, values),
        shape=tuple(map(to_word, shape)),
        points=len(rows),
    )


def trend_of(steps: Steps, values: Floats, *, p: float = 0.01, min_points: int = 8, max_points: int = 200) -> Trend | None:
    """Tell whether the second half of the points rises or falls, None where it has too few finite ones.

    Args:
        steps: Shape (N,).
        values: Shape (N,).
        p: Rarer by chance than this is a trend (Mann-Kendall, as in theil_sen).
        min_points: Fewer cannot reach that p unless all of them rise.
        max_points: Longer halves are thinned to that many points, for pairs grow with the square.
    """
    late = slice(len(values) // 2, None)
    finite = np.isfinite(values[late])
    x, y = steps[late][finite].astype(float), values[late][finite]
    if len(y) < min_points:
        return None
    trend = theil_sen(x, y, max_points=max_points)
    if trend.p >= p or trend.slope == 0:
        return "steady"
    return "rising" if trend.slope > 0 else "falling"
