"""The long form that data programs like: a line for each step, metric and label, in pieces of bounded size."""

from collections.abc import Iterator

from msgspec import Struct

from ckaudit.audit.measure import Measurement
from ckaudit.run.read import Progress
from ckaudit.run.series import Floats, Mask, Steps

COLUMNS = ("step", "metric", "label", "value", "recorded")


class SeriesPart(Struct, frozen=True, eq=False):
    """Some steps of one label of one metric; steps, values and recorded have the shape (N,)."""

    metric: str
    label: str
    steps: Steps
    values: Floats
    recorded: Mask


def pieces(measurement: Measurement, progress: Progress | None = None, *, max_steps: int = 250_000) -> Iterator[SeriesPart]:
    """Yield all metrics, each label from its first step to its last, at most `max_steps` steps at a time."""
    total, done = sum(len(measured.series.labels) for measured in measurement.measured), 0
    for measured in measurement.measured:
        series = measured.series
        for column, label in enumerate(series.labels):
            done += 1
            if progress:
                progress(done, total)
            for start in range(0, len(series.steps), max_steps):
                rows = slice(start, start + max_steps)
                yield SeriesPart(
                    measured.name, label, series.steps[rows], series.values[rows, column], series.recorded[rows, column]
                )
