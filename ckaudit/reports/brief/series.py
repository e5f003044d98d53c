"""Metrics in few words: a line each, or, for requested metrics, the numbers themselves, thinned if there are many."""

from fnmatch import fnmatchcase

import numpy as np
from msgspec.structs import replace

from ckaudit.audit.measure import LabelSummary, MeasuredMetric, Measurement, label_summaries, worst_label
from ckaudit.contract.schema.numbers import encode_float
from ckaudit.errors import UsageError
from ckaudit.reports.brief.text_budget import clipped, fitted
from ckaudit.reports.escape import visible
from ckaudit.reports.words import number
from ckaudit.run.series import Floats, Mask, Series, Steps
from ckaudit.wording import first_names, plural

MAX_CHARACTERS = 6_000
"""About 1,500 tokens, because the numbers were asked for."""
DIGITS = 6
MAX_LABELS = 6


def overview(measurement: Measurement, *, more: str) -> str:
    """Return a line for each metric with a value: its last value and trend; for several labels, those of the worst label.

    Args:
        measurement: The metrics.
        more: Where to find the rest.
    """
    lines = {measured.name: _line(measured) for measured in measurement.measured}
    count = plural(len(lines), "metric")
    head = f"{count} with a value up to step {measurement.step}, {len(measurement.missing)} without; last value of each"
    return fitted([head], lines, [*_notes(measurement), more], limit=MAX_CHARACTERS)


def series(measurement: Measurement, *, points: int, label: str, more: str) -> str:
    """Return the points of each metric by label, the worst label first.

    Args:
        measurement: The metrics.
        points: Maximum number of points per label.
        label: Only labels that match this pattern; empty: all.
        more: Where to find the rest.

    Raises:
        UsageError: If no label matches the pattern.
    """
    chosen = [_with_labels(measured, label) for measured in measurement.measured] if label else list(measurement.measured)
    shown = [measured for measured in chosen if measured.series.labels]
    if label and measurement.measured and not shown:
        names = [name for measured in measurement.measured for name in measured.series.labels]
        raise UsageError(f"no label is called {label!r}", hint=f"There is {first_names(names, 8)}.")
    blocks = {measured.name: _block(measured, points) for measured in shown}
    missing = [f"{missing.name} ({missing.reason.replace('_', ' ')})" for missing in measurement.missing]
    no_value = clipped(f"no value: {first_names(missing, 6)}", 400) if missing else ""
    return fitted([], blocks, [no_value, *_notes(measurement), more], limit=MAX_CHARACTERS)


def _line(measured: MeasuredMetric) -> str:
    last = worst_label(measured)
    count = len(measured.series.labels)
    where = f"{last.label}, worst of {count:,}" if count > 1 else ""
    unit = "" if measured.unit == "1" else f" {measured.unit}"
    about = ", ".join(part for part in (f"{number(last.last)}{unit}", last.trend or "", where) if part)
    return clipped(f"{measured.name}: {about}", 120)


def _with_labels(measured: MeasuredMetric, pattern: str) -> MeasuredMetric:
    """Return a metric with only those of its labels that match a pattern."""
    table = measured.series
    kept = [place for place, name in enumerate(table.labels) if name == pattern or fnmatchcase(name, pattern)]
    labels = tuple(table.labels[place] for place in kept)
    return replace(measured, series=replace(table, labels=labels, values=table.values[:, kept], recorded=table.recorded[:, kept]))


def _block(measured: MeasuredMetric, points: int) -> str:
    """Return the description of a metric, and the points of its first labels."""
    count = len(measured.series.labels)
    head = visible(f"{measured.name} ({measured.unit}): {measured.title}")
    if count > MAX_LABELS:
        head += f" {MAX_LABELS} of {count:,} labels follow, the worst first; label=NAME or a pattern chooses others."
    columns = {name: place for place, name in enumerate(measured.series.labels)}
    labels = [
        _label(summary, measured.series, columns[summary.label], points)
        for summary in label_summaries(measured, max_labels=MAX_LABELS)
    ]
    return "\n".join([head, *labels])


def _label(summary: LabelSummary, table: Series, column: int, points: int) -> str:
    """Return the last, lowest and highest value of a label, then its points as `step: value`."""
    known = table.recorded[:, column]
    steps, values = table.steps[known], table.values[known, column]
    kept = thinned(values, points)
    extent = (
        f"thinned to {kept.sum():,} of {len(steps):,} points, extremes kept" if not kept.all() else plural(len(steps), "point")
    )
    pairs = zip(steps[kept].tolist(), values[kept].tolist(), strict=True)
    cells = ", ".join(f"{step}: {_digits(value)}" for step, value in pairs)
    trend = f" ({summary.trend})" if summary.trend else ""
    last = f"last {number(summary.last, digits=DIGITS)} at step {summary.step}{trend}"
    return f"{visible(summary.label)}: {', '.join([last, *_ends(steps, values)])}; {extent}\n  {cells}"


def _ends(steps: Steps, values: Floats) -> list[str]:
    """Return the lowest and highest finite value with their steps, and how many points are not finite."""
    finite = np.flatnonzero(np.isfinite(values))
    if not len(finite):
        return ["none finite"]
    rows = (("least", finite[np.argmin(values[finite])]), ("greatest", finite[np.argmax(values[finite])]))
    extremes = [f"{word} {_digits(float(values[row]))} at step {steps[row]}" for word, row in rows]
    broken = len(values) - len(finite)
    return [*extremes, *([f"{plural(broken, 'point')} not finite"] if broken else [])]


def _digits(value: float) -> str:
    return number(encode_float(value), digits=DIGITS)


def thinned(values: Floats, points: int) -> Mask:
    """Return which of the values are shown: evenly spaced ones, the lowest, the highest, and the first that is not finite.

    Args:
        values: Shape (T,).
        points: Maximum number of values, apart from the last three.
    """
    kept = np.zeros(len(values), bool)
    kept[np.linspace(0, len(values) - 1, min(max(points, 2), len(values))).round().astype(int)] = True
    finite = np.isfinite(values)
    if finite.any():
        rows = np.flatnonzero(finite)
        kept[[rows[np.argmin(values[rows])], rows[np.argmax(values[rows])]]] = True
    if not finite.all():
        kept[np.argmin(finite)] = True
    return kept


def _notes(measurement: Measurement) -> list[str]:
    return [clipped(f"note: {note}", 200) for note in measurement.notes[:2]]
