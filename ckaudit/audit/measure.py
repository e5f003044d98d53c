"""Metrics of a run as a table: computes the requested metrics and summarizes each series in one line."""

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ckaudit.audit.figures import shape_preserving
from ckaudit.audit.load_run import at_step, open_run
from ckaudit.contract.schema.import_options import NO_IMPORT_OPTIONS, ImportOptions
from ckaudit.contract.schema.metrics import Missing, Trend
from ckaudit.contract.schema.numbers import Number, encode_float, ignoring_float_errors
from ckaudit.errors import UsageError
from ckaudit.metrics import Metric, metrics
from ckaudit.metrics.metric import Worst
from ckaudit.metrics.trend import theil_sen
from ckaudit.plugins import broken
from ckaudit.run.read import Progress
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Series, Steps

OF_METRICS = ("claimed_value", "nearest_allowed_value")  # their labels are metrics


class StepRange(Struct, frozen=True):
    """The wanted steps.

    Attributes:
        step: Cut for all metrics; None: no cut.
        first: First step to show; metrics look back beyond it.
        last: Last step to show.
        every: Shows the last recorded step of each group of this many steps.
    """

    step: int | None = None
    first: int | None = None
    last: int | None = None
    every: int = 1


class MeasuredMetric(Struct, frozen=True, eq=False):
    """One metric with a value; `worst` determines which of its labels comes first."""

    name: str
    title: str
    unit: str
    source: str
    series: Series
    worst: Worst = "high"


class Measurement(Struct, frozen=True, eq=False):
    """Result of a measurement.

    Attributes:
        subject: Name that the user gave the run.
        step: Last known step.
        measured: Metrics with at least one value, in the order of the catalogue.
        missing: The other metrics.
        notes: Notes on how the run was read.
        files: Number of files read.
    """

    subject: str
    step: int | None
    measured: tuple[MeasuredMetric, ...]
    missing: tuple[Missing, ...]
    notes: tuple[str, ...]
    files: int


def measure(
    path: Path,
    *,
    names: Sequence[str] = (),
    stretch: StepRange = StepRange(),  # noqa: B008  it cannot change
    import_options: ImportOptions = NO_IMPORT_OPTIONS,
    progress: Progress | None = None,
) -> Measurement:
    """Compute metrics of one run.

    Args:
        path: A run folder, a checkpoint file, or a log that an importer knows.
        names: Metrics or patterns; empty: all metrics.
        stretch: The wanted steps.
        import_options: Facts that the log of another program lacks, such as which column holds the loss.
        progress: Called with the number of files done and their total.

    Raises:
        UnreadableError: If there is no run.
        UsageError: If a name matches no metric, or the step is before the record.
    """
    chosen = select(names)
    reads = frozenset[str]().union(*(metric.paths for metric in chosen))
    run = open_run(path, reads=reads, import_options=import_options, progress=progress)
    return measure_run(run, chosen, stretch)


@ignoring_float_errors
def measure_run(run: Run, chosen: Sequence[Metric], stretch: StepRange) -> Measurement:
    """Compute metrics of a run in memory."""
    run = at_step(run, stretch.step)
    notes = [*run.notes, *notes_on_files(run), *map(str, broken())]
    measured: list[MeasuredMetric] = []
    missing: list[Missing] = []
    for metric in chosen:
        result = _measured(metric, run, stretch)
        if isinstance(result, Missing):
            missing.append(result)
        else:
            measured.append(result)
    return Measurement(run.name, run.last_step, tuple(measured), tuple(missing), tuple(notes), run.files)


def _measured(metric: Metric, run: Run, stretch: StepRange) -> MeasuredMetric | Missing:
    try:
        series = metric(run)
    except Exception as error:  # noqa: BLE001  one broken metric must not cost all others
        return Missing(name=metric.name, reason="broke", detail=f"{type(error).__name__}: {error}")
    if not series:
        return Missing(name=metric.name, reason="not_recorded")
    shown = select_steps(_own_label(metric, series), stretch)
    if not shown:
        return Missing(name=metric.name, reason="not_in_these_steps")
    return MeasuredMetric(metric.name, metric.title, run.shown_unit(metric.unit), metric.source, shown, metric.worst)


def _own_label(metric: Metric, series: Series) -> Series:
    """Return a single-label series under the metric's name if its label only names the input."""
    if len(series.labels) != 1 or metric.name in OF_METRICS:
        return series
    made_of = series.labels[0] in metric.reads or series.labels[0] in metrics()
    return replace(series, labels=(metric.name,)) if made_of else series


def select_steps(series: Series, stretch: StepRange) -> Series:
    """Return the shown steps of a series, and the labels recorded in them.

    With every=100, steps 1 to 100 form a group, 101 to 200 the next, so that 100, 200, ... remain of a dense log.
    """
    start = 0 if stretch.first is None else int(np.searchsorted(series.steps, stretch.first))
    end = len(series.steps) if stretch.last is None else int(np.searchsorted(series.steps, stretch.last, side="right"))
    if (start, end) != (0, len(series.steps)):
        inside = slice(start, max(start, end))
        series = replace(series, steps=series.steps[inside], values=series.values[inside], recorded=series.recorded[inside])
    if stretch.every > 1:
        series = series.recorded_rows()
        turn = (series.steps + stretch.every - 1) // stretch.every
        is_last = np.append(turn[1:] != turn[:-1], True)[: len(turn)]
        series = replace(series, steps=series.steps[is_last], values=series.values[is_last], recorded=series.recorded[is_last])
    known = np.any(series.recorded, axis=0)
    if known.all():
        return series
    labels = tuple(label for label, keep in zip(series.labels, known.tolist(), strict=True) if keep)
    return replace(series, labels=labels, values=series.values[:, known], recorded=series.recorded[:, known])


def notes_on_files(run: Run) -> list[str]:
    """Return one sentence on problems of the files."""
    count = len(run.findings)
    if not count:
        return []
    first = run.findings[0]
    more = f" (and {count - 1:,} more)" if count > 1 else ""
    return [f"{first.file or run.name}: {first.message}{more}; ckaudit validate says where and what helps"]


# Metrics that match the names on the command line.
def select(names: Sequence[str]) -> tuple[Metric, ...]:
    """Return the metrics that any of `names` matches, in the order of the catalogue; without names, all.

    Args:
        names: Catalogue names or patterns such as "grad_*", rows such as "M19", or other names of a metric. For rows and other
            names case does not matter, and a hyphen equals an underscore.

    Raises:
        UsageError: If a name matches none, with the nearest names.
    """
    catalogue = metrics().values()
    if not names:
        return tuple(catalogue)
    chosen = {metric.name for name in names for metric in _meant(name, catalogue)}
    return tuple(metric for metric in catalogue if metric.name in chosen)


def identifiers(metric: Metric) -> tuple[str, ...]:
    """Return all names of a metric: its own, its rows and other names."""
    from ckaudit.metrics.catalogue import entries

    entry = entries().get(metric.name)
    return (metric.name, *entry.rows, *entry.also_called) if entry else (metric.name,)


def _meant(name: str, catalogue: Collection[Metric]) -> list[Metric]:
    meant = [metric for metric in catalogue if fnmatchcase(metric.name, name)]
    # The prose of the catalogue is read only if a name is not that of a metric.
    meant = meant or [metric for metric in catalogue if _key(name) in map(_key, identifiers(metric))]
    if meant:
        return meant
    spelled = {_key(word): word for metric in catalogue for word in identifiers(metric)}
    near = [spelled[key] for key in get_close_matches(_key(name), spelled, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(near)}?" if near else "without a name, all metrics that have a value are shown"
    raise UsageError(f"no metric is called {name!r}", hint=hint)


def _key(name: str) -> str:
    return name.strip().lower().replace("-", "_")


# A series in one line: last value, extremes, trend, and its shape in a few points.
SHAPE = 24  # points of a shape, as many as the table has columns for


class LabelSummary(Struct, frozen=True):
    """One label of one metric.

    Attributes:
        label: Tensor, block, head or slice.
        last: Last recorded value.
        step: Step of that value.
        trend: Trend of the second half of its points; None if there are too few.
        shape: At most `SHAPE` of its values, including spikes.
        points: Number of recorded points.
    """

    label: str
    last: Number
    step: int
    trend: Trend | None
    shape: tuple[Number, ...]
    points: int


def worst_label(measured: MeasuredMetric) -> LabelSummary:
    """Return the label with the worst last value for the metric; a non-finite one is the worst of all."""
    return _label_summary(measured.series, _worst_first(measured)[0])


def label_summaries(measured: MeasuredMetric, *, max_labels: int | None) -> list[LabelSummary]:
    """Return the labels, worst last value first, at most `max_labels` of them."""
    return [_label_summary(measured.series, column) for column in _worst_first(measured)[:max_labels]]


def _worst_first(measured: MeasuredMetric) -> list[int]:
    if measured.worst == "first":
        return list(range(len(measured.series.labels)))
    # The row of each label's last recorded cell, shape (P,).
    rows = len(measured.series.steps) - 1 - np.argmax(measured.series.recorded[::-1], axis=0)
    last = measured.series.values[rows, np.arange(len(rows))]
    rank = last if measured.worst == "low" else -np.abs(last)
    order: list[int] = np.argsort(np.where(np.isfinite(last), rank, -np.inf), kind="stable").tolist()
    return order


@ignoring_float_errors
def _label_summary(series: Series, column: int) -> LabelSummary:
    rows = np.flatnonzero(series.recorded[:, column])
    steps, values = series.steps[rows], series.values[rows, column]
    shape = values[shape_preserving(values, SHAPE)].tolist()
    return LabelSummary(
        label=series.labels[column],
        last=encode_float(float(values[-1])),
        step=int(steps[-1]),
        trend=trend_of(steps, values),
        shape=tuple(map(encode_float, shape)),
        points=len(rows),
    )


def trend_of(steps: Steps, values: Floats, *, p: float = 0.01, min_points: int = 8, max_points: int = 200) -> Trend | None:
    """Return whether the second half of the points rises or falls; None if it has too few finite ones.

    Args:
        steps: Shape (N,).
        values: Shape (N,).
        p: Largest probability by chance of a trend (Mann-Kendall, as in theil_sen).
        min_points: Smallest number of points; fewer cannot reach that p unless all of them rise.
        max_points: Longer halves are thinned to this many points, because pairs grow with the square.
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
