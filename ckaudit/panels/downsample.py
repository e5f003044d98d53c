"""Smaller charts: fewer points, columns and steps, names cut in the middle, or charts left out.

A curve keeps the lowest and the highest value of each stretch, so no value lies outside the drawn curve. The largest-triangle
method (Steinarsson 2013) keeps one point of each stretch, and loses one of two spikes in a stretch.
"""

import re
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any, TypeVar
from zlib import crc32

import msgspec
import numpy as np
from msgspec.structs import replace

from ckaudit.contract.schema.numbers import Number
from ckaudit.contract.schema.panels import Chart, Frame, Matrix, Panels, Ridge, Tab, Trace
from ckaudit.run.medians import median
from ckaudit.run.series import Floats, Mask, Steps

T = TypeVar("T", bound=msgspec.Struct)
OfSteps = TypeVar("OfSteps", Frame, Ridge)
MAX_LETTERS = 120
UNSHORTENED = ("formula", "cells")  # half of it would be empty


def kept_points(values: Floats, points: int) -> Steps:
    """Return at most `points` rows of values (N,): the first, the last, and of each stretch its extremes and non-finite ones.

    >>> kept_points(np.array([0.0, 0, 0, 9, 0, 0, 0, -9, 0, 0]), 6).tolist()
    [0, 3, 5, 7, 9]
    """
    count = len(values)
    if count <= points:
        return np.arange(count)
    finite = np.isfinite(values)
    is_whole = bool(finite.all())
    edges = np.linspace(0, count, max(1, (points - 2) // (2 if is_whole else 3)) + 1).astype(int).tolist()
    low, high = np.where(finite, values, np.inf), np.where(finite, values, -np.inf)
    rows = {0, count - 1}
    for start, end in pairwise(edges):
        rows |= {start + int(low[start:end].argmin()), start + int(high[start:end].argmax())}
        if not is_whole:
            rows.add(start + int(finite[start:end].argmin()))
    return np.array(sorted(rows))


def kept_columns(values: Floats, recorded: Mask, columns: int) -> Steps:
    """Return at most `columns` rows of values (T, P): the first, the last, and the row of each stretch that stands out most.

    A row stands out by the number of powers of ten between one of its cells and the median of that cell's column; a recorded cell
    that is not finite stands out most.
    """
    count = len(values)
    if count <= columns:
        return np.arange(count)
    size = np.log10(np.maximum(np.abs(np.where(np.isfinite(values), values, 0.0)), 1e-30))
    known = recorded & np.isfinite(values)
    middle = np.array([median(size[known[:, place], place]) if known[:, place].any() else 0.0 for place in range(size.shape[1])])
    far = np.where(known, np.abs(size - middle), np.where(recorded, np.inf, -1.0)).max(axis=1)
    edges = np.linspace(1, count - 1, columns - 1).astype(int).tolist()
    return np.array([0, *(start + int(np.argmax(far[start:end])) for start, end in pairwise(edges) if end > start), count - 1])


def evenly(count: int, max_places: int) -> list[int]:
    """Return at most `max_places` positions of `count`, evenly spread, including both ends.

    >>> evenly(10, 4), evenly(3, 4)
    ([0, 3, 6, 9], [0, 1, 2])
    """
    if count <= max_places:
        return list(range(count))
    return sorted({place * (count - 1) // (max_places - 1) for place in range(max_places)}) if max_places > 1 else [0]


# Reduction of a page that is too large: half as many points, steps and columns, shorter names, or fewer charts.
def thinned(panels: Panels) -> Panels:
    """Return the same charts at half the resolution; single steps that stand out stay."""
    tabs = [replace(tab, charts=[_thinned(chart) for chart in tab.charts]) for tab in panels.tabs]
    return replace(panels, tabs=tabs, front=[_thinned(chart) for chart in panels.front])


def _thinned(chart: Chart) -> Chart:
    return replace(
        chart,
        traces=[_fewer_points(trace, evened=chart.stacked) for trace in chart.traces] if chart.shape == "lines" else chart.traces,
        matrix=_fewer_columns(chart.matrix) if chart.matrix else None,
        frames=_every_second(chart.frames),
        ridges=_every_second(chart.ridges),
    )


def _fewer_points(trace: Trace, *, evened: bool) -> Trace:
    """Return a curve of half as many points; stacked curves all keep the same steps."""
    half = max(2, len(trace.x) // 2)
    rows: Sequence[int] = evenly(len(trace.x), half) if evened else kept_points(_numbers(trace.y), half).tolist()
    low, high = ([bound[place] for place in rows] if bound else [] for bound in (trace.low, trace.high))
    return replace(trace, x=[trace.x[place] for place in rows], y=[trace.y[place] for place in rows], low=low, high=high)


def _fewer_columns(matrix: Matrix) -> Matrix:
    cells = np.array([_numbers(row) for row in matrix.values]).T
    recorded = np.array([[cell is not None for cell in row] for row in matrix.values], bool).T
    picked = kept_columns(cells, recorded, max(2, len(matrix.columns) // 2)).tolist() if len(matrix.rows) else []
    columns = [matrix.columns[place] for place in picked]
    return replace(matrix, columns=columns, values=[[row[place] for place in picked] for row in matrix.values])


def _every_second(shown: list[OfSteps]) -> list[OfSteps]:
    """Return every second step of each place, including first and last."""
    halved = []
    for where in dict.fromkeys(frame.where for frame in shown):
        of_place = [frame for frame in shown if frame.where == where]
        halved += [of_place[place] for place in evenly(len(of_place), max(2, len(of_place) // 2))]
    return halved


def _numbers(values: Sequence[Number | None]) -> Floats:
    return np.array([np.nan if value is None else float(value) for value in values])


def without_charts(panels: Panels, left_out: Collection[str]) -> Panels:
    """Return the panels without some charts; their tabs say what is missing."""
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


def shorten_document(document: T, letters: int = MAX_LETTERS) -> T:
    """Return a document in which no word is longer than `letters`, and no text longer than twenty times that."""
    shorter: T = msgspec.convert(_brief(msgspec.to_builtins(document), letters), type=type(document))
    return shorter


def _brief(value: Any, letters: int) -> Any:
    match value:
        case str():
            return shortened(value, letters)
        case dict():
            return {shortened(key, letters): item if key in UNSHORTENED else _brief(item, letters) for key, item in value.items()}
        case list() | tuple():
            return [item if type(item) is float else _brief(item, letters) for item in value]
    return value


def shortened(text: str, letters: int) -> str:
    """Return a text with long words cut in the middle, with a checksum that distinguishes words with equal ends.

    >>> shortened("weights of blocks.0.attention.weight", 20)
    'weights of block…de523ffd…eight'
    """
    cut = re.sub(rf"\S{{{letters + 1},}}", lambda match: _cut(match[0], letters), text)
    return cut if len(cut) <= 20 * letters else _cut(cut, 20 * letters)


def _cut(word: str, letters: int) -> str:
    """Return both ends of a word with a checksum of the whole word between them."""
    number = f"…{crc32(word.encode(errors='backslashreplace')):08x}…"
    rest = letters - len(number)
    return f"{word[: rest // 2]}{number}{word[len(word) - (rest - rest // 2) :]}"
