"""The first chart of a tab as SVG, of curves, bars or a map: shown while the charting library is loading."""

import math
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
from msgspec.structs import replace

from ckaudit.contract.schema.numbers import Number, finite
from ckaudit.contract.schema.panels import Chart, Matrix, Trace
from ckaudit.panels.downsample import kept_points
from ckaudit.reports.markup import Markup, join, tag
from ckaudit.reports.svg.plot import plot, shortened
from ckaudit.reports.svg.scale import part_of
from ckaudit.reports.svg.style import with_attributes
from ckaudit.reports.words import number

WIDTH, HEIGHT = 440, 300

POINTS = 160  # of a curve

PLACES = 40  # bars, or rows of a map: more would be too small to read

NAMES, FOOT = 150, 20  # pixels to the left of bars and maps, and below them

ROW = 13  # pixels of a row

SHADES = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725")
"""Viridis in nine steps (Nunez et al. 2018), as in the charts that replace it."""

Cell = Number | str | None


def static_chart(chart: Chart, names: Sequence[str]) -> Markup:
    """Return a chart without a script; empty for histograms and sampled matrices, which need controls.

    Args:
        chart: The chart to draw.
        names: Names of the runs.
    """
    height, inside = HEIGHT, Markup("")
    if chart.shape == "lines" and chart.traces:
        few = [_few_points(trace) for trace in chart.traces if trace.axis == "left"]
        inside = plot(replace(chart, traces=few or chart.traces), WIDTH - 8, height, subjects=names, names=False)
    elif chart.shape == "bars" and chart.traces:
        inside, height = _bars(chart, both=len(names) > 1)
    elif chart.matrix is not None and chart.matrix.values:
        inside, height = _map(chart, chart.matrix)
    if not inside:
        return inside
    return with_attributes(tag("svg", inside, viewBox=f"0 0 {WIDTH} {height}", class_="picture still", aria_hidden="true"))


def _few_points(trace: Trace) -> Trace:
    values = np.array([np.nan if (at := finite(value)) is None else at for value in trace.y])
    rows = kept_points(values, POINTS).tolist()
    return replace(trace, x=[trace.x[row] for row in rows], y=[trace.y[row] for row in rows], low=[], high=[])


def _scaled(value: Cell, *, log: bool) -> float | None:
    at = finite(value)
    if at is None or not log:
        return at
    return math.log10(at) if at > 0 else None


# Horizontal bars: a row for each place, with one bar per run.
def _bars(chart: Chart, *, both: bool) -> tuple[Markup, int]:
    places = [str(place) for place in chart.traces[0].x[:PLACES]]
    known = [at for trace in chart.traces for value in trace.y[:PLACES] if (at := _scaled(value, log=chart.log)) is not None]
    low, high = (
        (min([0.0, *known]), max([0.0, *known])) if not chart.log else (min(known, default=0.0) - 1, max(known, default=1.0))
    )
    wide = WIDTH - NAMES - 60
    tall = ROW * len(chart.traces) + 4
    parts = list(_row_names(places, tall))
    for run, trace in enumerate(chart.traces):
        colour = "plain" if both and chart.run is None and len(chart.traces) == 1 else f"c{trace.run if both else run}"
        for place, value in enumerate(trace.y[:PLACES]):
            y, at = place * tall + run * ROW, _scaled(value, log=chart.log)
            if at is not None:
                start, end = sorted(NAMES + part_of(end, low, high) * wide for end in (max(low, 0.0), at))
                parts.append(
                    tag("rect", x=f"{start:.1f}", y=y, width=f"{end - start:.1f}", height=ROW - 2, class_=f"dot {colour}")
                )
            words = "" if value is None else number(value)
            parts.append(tag("text", words, x=f"{NAMES + ((at if at is not None else low) - low) * wide + 4:.1f}", y=y + 10))
    return join(parts, ""), tall * len(places) + FOOT


def _row_names(names: Sequence[str], tall: float) -> Iterator[Markup]:
    for place, name in enumerate(names):
        yield tag("text", shortened(name, 21), x=NAMES - 6, y=f"{(place + 0.5) * tall + 4:.1f}", class_="end")


# A map: the cells of each shade form one path, so that a thousand cells need few letters.
def _map(chart: Chart, matrix: Matrix) -> tuple[Markup, int]:
    rows, tall = len(matrix.values[:PLACES]), max(ROW, 130 // len(matrix.values))
    wide = (WIDTH - NAMES - 10) / max(1, len(matrix.columns))
    ends = chart.ends or tuple(chain.from_iterable(matrix.values))
    known = [at for value in ends if (at := _scaled(value, log=chart.log)) is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    cells: dict[str, list[str]] = {}
    for row, values in enumerate(matrix.values[:PLACES]):
        for column, value in enumerate(values):
            if value is not None:
                look = _shade(value, low, high, log=chart.log)
                cells.setdefault(look, []).append(f"M{NAMES + column * wide:.1f} {row * tall}h{wide:.1f}v{tall}h{-wide:.1f}z")
    paths = [tag("path", d="".join(parts), **_fill_attributes(look)) for look, parts in cells.items()]
    below = [
        tag("text", matrix.columns[column], x=f"{NAMES + (column + 0.5) * wide:.1f}", y=rows * tall + 15, class_="middle")
        for column in range(0, len(matrix.columns), max(1, math.ceil(45 / wide)))
    ]
    return join([*_row_names(matrix.rows[:PLACES], tall), *paths, *below], ""), rows * tall + FOOT


def _shade(value: Cell, low: float, high: float, *, log: bool) -> str:
    """Return the colour of a cell, or the name of its state if it is not a finite number."""
    at = _scaled(value, log=log)
    if at is None:
        return "broken"
    return SHADES[min(len(SHADES) - 1, max(0, int(part_of(at, low, high) * len(SHADES))))]


def _fill_attributes(look: str) -> dict[str, str]:
    return {"class_": "mark sev0"} if look == "broken" else {"fill": look}
