"""Pictures made smaller: half as many points, steps and columns, names cut in their middle, or whole charts left out."""

import re
from collections.abc import Collection, Sequence
from typing import Any, TypeVar
from zlib import crc32

import msgspec
import numpy as np
from msgspec.structs import replace

from ckaudit.contract.schema.numbers import Number
from ckaudit.contract.schema.panels import Chart, Frame, Matrix, Panels, Ridge, Tab, Trace
from ckaudit.panels.sample import evenly, kept_columns, kept_points
from ckaudit.run.series import Floats

T = TypeVar("T", bound=msgspec.Struct)
OfSteps = TypeVar("OfSteps", Frame, Ridge)
LETTERS = 120
WHOLE = ("formula", "cells")  # half of it would be none


def thinned(panels: Panels) -> Panels:
    """Return the same pictures at half the resolution; what stands out for one step alone is still there."""
    return replace(panels, tabs=[replace(tab, charts=[_thinned(chart) for chart in tab.charts]) for tab in panels.tabs])


def _thinned(chart: Chart) -> Chart:
    return replace(
        chart,
        traces=[_fewer_points(trace, evened=chart.stacked) for trace in chart.traces] if chart.shape == "lines" else chart.traces,
        matrix=_fewer_columns(chart.matrix) if chart.matrix else None,
        frames=_every_second(chart.frames),
        ridges=_every_second(chart.ridges),
    )


def _fewer_points(trace: Trace, *, evened: bool) -> Trace:
    """Return a curve of half as many points; of curves that stand on each other all keep the same steps."""
    half = max(2, len(trace.x) // 2)
    kept: Sequence[int] = evenly(len(trace.x), half) if evened else kept_points(_numbers(trace.y), half).tolist()
    low, high = ([each[place] for place in kept] if each else [] for each in (trace.low, trace.high))
    return replace(trace, x=[trace.x[place] for place in kept], y=[trace.y[place] for place in kept], low=low, high=high)


def _fewer_columns(matrix: Matrix) -> Matrix:
    cells = np.array([_numbers(row) for row in matrix.values]).T
    recorded = np.array([[cell is not None for cell in row] for row in matrix.values], bool).T
    kept = kept_columns(cells, recorded, max(2, len(matrix.columns) // 2)).tolist() if len(matrix.rows) else []
    columns = [matrix.columns[place] for place in kept]
    return replace(matrix, columns=columns, values=[[row[place] for place in kept] for row in matrix.values])


def _every_second(shown: list[OfSteps]) -> list[OfSteps]:
    """Return every second step of each place, first and last among them."""
    kept = []
    for where in dict.fromkeys(each.where for each in shown):
        own = [each for each in shown if each.where == where]
        kept += [own[place] for place in evenly(len(own), max(2, len(own) // 2))]
    return kept


def _numbers(values: Sequence[Number | None]) -> Floats:
    return np.array([np.nan if value is None else float(value) for value in values])


def without(panels: Panels, left_out: Collection[str]) -> Panels:
    """Return the pictures without some charts, each of whose tabs says what it lacks."""
    gone = {chart.id for tab in panels.tabs for chart in tab.charts} & {*left_out}
    links = [replace(link, chart=None) if link.chart in gone else link for link in panels.links]
    return replace(panels, tabs=[_tab_without(tab, gone) for tab in panels.tabs], links=links)


def _tab_without(tab: Tab, gone: Collection[str]) -> Tab:
    lacks = [
        f"{chart.title} The picture was left out to keep the file small: see ckaudit metrics RUN {' '.join(chart.metrics)}"
        for chart in tab.charts
        if chart.id in gone
    ]
    return replace(tab, charts=[chart for chart in tab.charts if chart.id not in gone], missing=[*tab.missing, *lacks])


def brief(document: T, letters: int = LETTERS) -> T:
    """Return a document in which no word is longer than so many letters, and no text than twenty times as many."""
    made: T = msgspec.convert(_brief(msgspec.to_builtins(document), letters), type=type(document))
    return made


def _brief(value: Any, letters: int) -> Any:
    match value:
        case str():
            return shortened(value, letters)
        case dict():
            return {shortened(key, letters): item if key in WHOLE else _brief(item, letters) for key, item in value.items()}
        case list() | tuple():
            return [item if type(item) is float else _brief(item, letters) for item in value]
    return value


def shortened(text: str, letters: int) -> str:
    """Return a text whose long words are cut in their middle, where a number tells apart those that begin and end alike.

    >>> shortened("weights of blocks.0.attention.weight", 20)
    'weights of block…de523ffd…eight'
    """
    cut = re.sub(rf"\S{{{letters + 1},}}", lambda match: _cut(match[0], letters), text)
    return cut if len(cut) <= 20 * letters else _cut(cut, 20 * letters)


def _cut(word: str, letters: int) -> str:
    """Return the two ends of a word with a number of all of it between them."""
    number = f"…{crc32(word.encode(errors='backslashreplace')):08x}…"
    rest = letters - len(number)
    return f"{word[: rest // 2]}{number}{word[len(word) - (rest - rest // 2) :]}"
