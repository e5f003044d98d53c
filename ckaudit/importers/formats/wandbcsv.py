"""A Weights & Biases chart saved as CSV: the x axis, then `RUN - METRIC` with `__MIN` and `__MAX` for each run and metric.

A file holds one chart, so one or few metrics of one or several runs. A chart shows thinned-out points; MIN and MAX
are those of the points left out between two of them. An empty cell means that its run logged nothing there.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from ckaudit.errors import UnreadableError
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import catalogue_name, list_names, resolve_columns, shorten_name, writable
from ckaudit.importers.notes_on_names import notes_on_left_out
from ckaudit.importers.tables.curves import Curves, imported_run, steps_of, steps_of_epochs
from ckaudit.importers.tables.numbers import Numbers
from ckaudit.importers.tables.table import NumberTable, read_numbers
from ckaudit.importers.tables.table_header import sniff_table

NAME = "Weights & Biases CSV"
GENERIC = False

_BETWEEN = " - "
_ENDS = ("__MIN", "__MAX")
_CLOCKS = ("relative time", "wall time")


class _Chart(Struct, frozen=True):
    """The contents of the header: the position of the x axis, and of each run's metrics."""

    axis: int
    runs: dict[str, dict[str, int]]


def detects(source: Source) -> bool:
    """Tell whether the header has names of the form RUN - METRIC with their MIN and MAX, or only such names beside the x axis."""
    table_head = sniff_table(source.head)
    if table_head is None:
        return False
    names = table_head[1]
    twins = any(_BETWEEN in name and f"{name}{_ENDS[0]}" in names for name in names)
    return twins or (len(names) > 2 and _BETWEEN not in names[0] and all(_BETWEEN in name for name in names[1:]))


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the chart, one run for each run in it; `columns` may name metrics without their run.

    Raises:
        UnreadableError: Where no metric has a known name, or none holds a value.
        UsageError: Where `columns` names something that does not exist.
    """
    table_head = sniff_table(source.head)
    if table_head is None:
        raise UnreadableError(f"{source.shown} has no header line", hint="Save the chart again.")
    delimiter, header, _ = table_head
    chart = _chart(header)
    wanted = {chart.axis, *(position for metrics in chart.runs.values() for position in metrics.values())}
    table = read_numbers(source.data, source.shown, header, wanted, delimiter)
    runs = [(name, _curves(table, chart, metrics, columns)) for name, metrics in chart.runs.items()]
    named = [(name, curves) for name, curves in runs if any(column.count for column in curves.series.values())]
    if not named:
        metrics = list(dict.fromkeys(metric for run in chart.runs.values() for metric in run))
        raise UnreadableError(
            f"{source.shown} is a chart of {list_names(metrics)}, which no common name says what it is, or which holds no value",
            hint="Name it, as in --map loss=METRIC.",
        )
    return [
        imported_run(
            curves, source.shown, NAME, size=table.size_text, notes=table.notes, name=writable(name) if len(named) > 1 else ""
        )
        for name, curves in named
    ]


def _chart(header: Sequence[str]) -> _Chart:
    axis = next((position for position, name in enumerate(header) if _BETWEEN not in name), 0)
    runs: dict[str, dict[str, int]] = {}
    for position, name in enumerate(header):
        run, between, metric = name.rpartition(_BETWEEN)
        if between and position != axis and not metric.endswith(_ENDS):
            runs.setdefault(run, {})[metric] = position
    return _Chart(axis, runs)


def _curves(table: NumberTable, chart: _Chart, metrics: Mapping[str, int], columns: Mapping[str, str]) -> Curves:
    names = [*metrics]
    usual = {
        name: metrics[metric] for metric in reversed(names) if (name := catalogue_name(metric)) not in (None, "step", "time")
    }
    chosen = {str(name): position for name, position in usual.items()}
    asked = {name: metric for name, metric in columns.items() if name != "step" and metric in metrics}
    chosen |= {name: metrics[names[position]] for name, position in resolve_columns(asked, names).items()}
    axis = table.columns[chart.axis]
    series = {name: table.columns[position] for name, position in chosen.items()}
    curves = _on_axis(table.header[chart.axis], axis, series, table.lines)
    pairs = ", ".join(f"{name} from {shorten_name(table.header[position])}" for name, position in chosen.items())
    curves.notes[:0] = [f"taken: {pairs}; a chart's points may have been thinned out, __MIN and __MAX between them were left out"]
    curves.names = [*metrics]
    curves.notes += notes_on_left_out([metric for metric, position in metrics.items() if position not in chosen.values()])
    return curves


def _on_axis(name: str, axis: Numbers, series: dict[str, Numbers], lines: Sequence[int]) -> Curves:
    """Return the curves over the x axis of a chart; rows are numbered where the axis is neither steps nor epochs."""
    if catalogue_name(name) == "step":
        steps, notes = steps_of(axis, lines)
        return Curves(steps, series, notes)
    if name.lower().endswith("epoch") and (counted := steps_of_epochs(axis, series.values())):
        return Curves(counted.steps, series, counted.notes, step_unit=counted.unit)
    why = "tells time" if name.lower().startswith(_CLOCKS) else "counts no steps"
    numbered = np.arange(1, len(lines) + 1)
    return Curves(
        numbered, series, [f"the x axis {shorten_name(name)} {why}: rows were numbered from 1; save the chart over its steps"]
    )
