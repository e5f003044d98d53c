"""Charts of one metric, or of several on the same axes: curves, bars, or heat maps, and the selection of drawn places."""

import inspect
import math
import re
from collections.abc import Collection, Sequence
from typing import Literal

import numpy as np
from msgspec.structs import replace

from ckaudit.contract.schema.numbers import Number, encode_float
from ckaudit.contract.schema.panels import Chart, Matrix, Trace
from ckaudit.metrics import metrics
from ckaudit.metrics.activations import activation_mean, activation_std
from ckaudit.metrics.catalogue import entries
from ckaudit.panels.annotations import Line, marks
from ckaudit.panels.downsample import evenly, kept_columns, kept_points
from ckaudit.panels.scene import Scene
from ckaudit.run.series import Floats, Mask, Series
from ckaudit.run.tensors import TensorTable

FORMULA = re.compile(r"\$\$(.*?)\$\$", re.DOTALL)
BEFORE_BLOCKS, BEHIND_BLOCKS = -1, 1_000_000_000
DIGITS = 5
OF_COLOURS = 3  # colours cannot distinguish more


def curves(
    scene: Scene,
    name: str,
    title: str,
    shown: Sequence[str],
    *,
    right: Sequence[str] = (),
    lines: Sequence[Line] = (),
    log: bool = False,
    stacked: bool = False,
    max_curves: int = 10,
    points: int = 800,
    marked: bool = False,
    note: str = "",
) -> Chart | None:
    """Return a chart of metrics over steps; None if none of them is recorded.

    Args:
        scene: The run, and the other run.
        name: The chart's id.
        title: The question it answers.
        shown: Metrics on the left axis, of one unit.
        right: Metrics on the right axis.
        lines: Limits and baselines on the left axis.
        log: Whether the left axis is logarithmic, if everything drawn on it is above zero.
        stacked: Whether the curves are parts of a whole.
        max_curves: Largest number of curves per metric: those of findings, then the most striking.
        points: Largest number of points per curve; fewer if there are many curves.
        marked: Whether all events are marked, not only those of these metrics.
        note: Additional text.
    """
    recorded = _recorded(scene, [*shown, *right])
    if not recorded:
        return None
    traces, left_out, places = [], dict[str, str](), dict[str, list[str]]()
    budget = max(60, min(points, 4 * points // sum(min(max_curves, len(series.labels)) for _, _, series in recorded)))
    metric_names = list(dict.fromkeys(metric for _, metric, _ in recorded))
    for run, metric, series in recorded:
        # The second run shows the same places as the first.
        drawn = most_striking_columns(series, metrics()[metric].worst, places.get(metric) or scene.places(metric), max_curves)
        places.setdefault(metric, [series.labels[place] for place in drawn])
        if len(drawn) < len(series.labels):
            left_out[metric] = f"{len(drawn)} of {len(series.labels)} curves of {metric} are drawn"
        axis: Literal["left", "right"] = "right" if metric in right else "left"
        traces += [_trace(series, place, metric, budget, run=run, axis=axis, alone=len(metric_names) == 1) for place in drawn]
    is_positive = all(series.values[series.finite].min(initial=1.0) > 0 for _, metric, series in recorded if metric not in right)
    return Chart(
        id=name,
        title=title,
        shape="lines",
        metrics=metric_names,
        formula=formula(*metric_names),
        unit=scene.run.shown_unit(metrics()[shown[0]].unit),
        right_unit=metrics()[right[0]].unit if any(metric in metric_names for metric in right) else "",
        stacked=stacked,
        log=log and is_positive,
        traces=traces,
        lines=list(lines),
        marks=marks(scene, None if marked else metric_names),
        note=". ".join(sentence for sentence in (note, *left_out.values()) if sentence),
    )


def _recorded(scene: Scene, names: Sequence[str]) -> list[tuple[int, str, Series]]:
    """Return run index, metric and series of every recorded metric of both runs."""
    both = [(run, name, metrics()[name](side.run)) for run, side in enumerate(_sides(scene)) for name in names]
    return [(run, name, series.recorded_rows()) for run, name, series in both if series]


def _sides(scene: Scene) -> list[Scene]:
    return [scene, scene.other] if scene.other else [scene]


def _trace(
    series: Series, place: int, metric: str, points: int, *, run: int, axis: Literal["left", "right"], alone: bool
) -> Trace:
    rows = np.flatnonzero(series.recorded[:, place])
    rows = rows[kept_points(series.values[rows, place], points)]
    label = series.labels[place]
    name = metric if len(series.labels) == 1 else label if alone else f"{metric} {label}"
    values = column(series.values[rows, place], series.recorded[rows, place])
    return Trace(name=name, x=series.steps[rows].tolist(), y=values, run=run, axis=axis)


def heat(
    scene: Scene,
    name: str,
    title: str,
    metric: str,
    *,
    log: bool = False,
    rows: int = 120,
    columns: int = 200,
    cells: int = 10_000,
) -> Chart | None:
    """Return a heat map of one metric: places in the order of the forward pass, by steps; None if nothing is recorded.

    Args:
        scene: The run.
        name: The chart's id.
        title: The question it answers.
        metric: The metric.
        log: Whether the colour scale is logarithmic.
        rows: Largest number of places.
        columns: Largest number of steps; each stretch keeps the step that stands out most.
        cells: Largest product of places and steps.
    """
    series = metrics()[metric](scene.run).recorded_rows()
    if not series:
        return None
    order = chosen(in_forward_order(scene.run.tensors, series.labels), series.labels, scene.places(metric), rows)
    values, recorded = series.values[:, order], series.recorded[:, order]
    steps = kept_columns(values, recorded, max(2, min(columns, cells // len(order))))
    matrix = Matrix(
        rows=[series.labels[place] for place in order],
        columns=[str(step) for step in series.steps[steps].tolist()],
        values=[column(values[steps, place], recorded[steps, place], OF_COLOURS) for place in range(len(order))],
    )
    left_out = [f"{len(order)} of {len(series.labels)} rows"] if len(order) < len(series.labels) else []
    left_out += [f"{len(steps)} of {len(series.steps)} steps"] if len(steps) < len(series.steps) else []
    return Chart(
        id=name,
        title=title,
        shape="heatmap",
        metrics=[metric],
        formula=formula(metric),
        unit=series.unit,
        log=log,
        matrix=matrix,
        marks=marks(scene, [metric]),
        note=f"{' and '.join(left_out)} are drawn" if left_out else "",
    )


# Charts of two runs that cannot share axes are placed side by side, with the same scale.
def side_by_side(first: Chart | None, second: Chart | None) -> list[Chart]:
    """Return the chart of one run, or those of two, each labelled with its run; only the first run has marks."""
    if second is None or first is None:
        return [first] if first else []
    ends = _shared_ends(first, second)
    pair = replace(first, run=0, ends=ends), replace(second, id=f"{second.id}_b", run=1, ends=ends, marks=[])
    return list(pair)


def _shared_ends(*charts: Chart) -> tuple[Number, Number] | None:
    cells = [cell for chart in charts if chart.matrix for row in chart.matrix.values for cell in row]
    known = [cell for cell in cells if isinstance(cell, int | float) and (cell > 0 or not charts[0].log)]
    return (min(known), max(known)) if known else None


def bars(
    scene: Scene, name: str, title: str, metric: str, *, log: bool = False, ranked: bool = False, max_bars: int = 40
) -> Chart | None:
    """Return the last values of one metric as bars, in the order of the forward pass or largest first; None if there are none."""
    sides = [(run, metrics()[metric](side.run).recorded_rows()) for run, side in enumerate(_sides(scene))]
    sides = [(run, series) for run, series in sides if series]
    if not sides:
        return None
    series = sides[0][1]
    order = in_forward_order(scene.run.tensors, series.labels)
    if ranked:
        last = np.where(series.finite[-1], series.values[-1], np.inf)
        order = sorted(order, key=lambda place: -last[place])[:max_bars]
    else:
        order = chosen(order, series.labels, scene.places(metric), max_bars)
    names = [series.labels[place] for place in order]
    left_out = f"; {len(order)} of {len(series.labels)} are drawn" if len(order) < len(series.labels) else ""
    return Chart(
        id=name,
        title=title,
        shape="bars",
        metrics=[metric],
        formula=formula(metric),
        unit=series.unit,
        log=log,
        x="place",
        traces=[_bar_row(side_series, names, run) for run, side_series in sides],
        note=_last_steps(sides) + left_out,
    )


def _last_steps(sides: Sequence[tuple[int, Series]]) -> str:
    """Return the step of the bars; both steps if two runs ended at different ones."""
    steps = {run: int(series.steps[-1]) for run, series in sides}
    if len({*steps.values()}) == 1:
        return f"at step {next(iter(steps.values()))}"
    return " and ".join(f"{'AB'[run]} at step {step}" for run, step in steps.items())


def _bar_row(series: Series, names: list[str], run: int) -> Trace:
    """Return the last values of some labels; None for those that the run lacks."""
    places = {label: place for place, label in enumerate(series.labels)}
    indices = [places.get(name) for name in names]
    values = np.array([np.nan if place is None else series.values[-1, place] for place in indices])
    known = np.array([place is not None and bool(series.recorded[-1, place]) for place in indices])
    step = int(series.steps[-1])
    return Trace(name=f"step {step}", x=list(names), y=column(values, known), run=run)


# The formula of a metric, from its docstring or from its catalogue entry.
def activation_bands(scene: Scene, *, max_layers: int = 8, points: int = 200) -> Chart | None:
    """Return the mean activation of some modules with one standard deviation on both sides; None if not recorded."""
    mean, std = activation_mean(scene.run).recorded_rows(), activation_std(scene.run)
    if not mean or not std:
        return None
    wide = {label: place for place, label in enumerate(std.labels)}
    both = [place for place in in_forward_order(scene.run.tensors, mean.labels) if mean.labels[place] in wide]
    traces = []
    for place in chosen(both, mean.labels, scene.places("activation_rms", "activation_std"), max_layers):
        label = mean.labels[place]
        rows = np.flatnonzero(mean.recorded[:, place] & np.isin(mean.steps, std.steps))
        rows = rows[kept_points(mean.values[rows, place], points)]
        at = np.searchsorted(std.steps, mean.steps[rows])
        middle, spread = mean.values[rows, place], std.values[at, wide[label]]
        known = std.recorded[at, wide[label]]
        low, high = column(middle - spread, known), column(middle + spread, known)
        is_recorded = mean.recorded[rows, place]
        traces.append(Trace(name=label, x=mean.steps[rows].tolist(), y=column(middle, is_recorded), low=low, high=high))
    left = f"{len(traces)} of {len(both)} modules are drawn" if len(traces) < len(both) else ""
    names = ["activation_mean", "activation_std"]
    return Chart(
        id="activation_bands",
        title="Do activations stay in their band?",
        shape="lines",
        metrics=names,
        traces=traces,
        formula=r"\mu \pm \sigma",
        unit="1",
        marks=marks(scene, ["activation_rms", *names]),
        note=left,
    )


def formula(*names: str) -> str:
    """Return the formulas of some metrics as one line of TeX, each once; empty if they are recorded as they are."""
    formulas = dict.fromkeys(tex for name in names for tex in _formulas(name))
    return r",\quad ".join(formulas)


def _formulas(name: str) -> list[str]:
    written = FORMULA.findall(inspect.cleandoc(metrics()[name].function.__doc__ or ""))
    entry = entries().get(name)
    return [" ".join(tex.split()) for tex in written] or list(entry.formulas.values() if entry else ())


# Order of tensors, blocks and heads, and the selection of those that are drawn.
def in_forward_order(table: TensorTable, names: Sequence[str]) -> list[int]:
    """Return the positions of names in the order of the forward pass: embeddings, blocks by depth, then what follows.

    >>> in_forward_order(TensorTable({}), ["head.weight", "blocks.1.up", "blocks.0.up", "wte"])
    [3, 2, 1, 0]
    """
    return sorted(range(len(names)), key=lambda place: depth(table, names[place]))


def depth(table: TensorTable, name: str) -> int:
    """Return the position of a name relative to the blocks: before, inside or after."""
    block = table.depth(name)
    if block is not None:
        return block
    return BEFORE_BLOCKS if table.kind(name) == "embedding" else BEHIND_BLOCKS


def chosen(places: Sequence[int], names: Sequence[str], wanted: Collection[str], max_places: int) -> list[int]:
    """Return at most `max_places` of some places in order: those with a wanted name, and others evenly spread."""
    if len(places) <= max_places:
        return list(places)
    asked = [place for place in places if names[place] in wanted][:max_places]
    others = [place for place in places if place not in asked]
    places_kept = (
        {*asked, *(others[place] for place in evenly(len(others), max_places - len(asked)))}
        if max_places > len(asked)
        else {*asked}
    )
    return [place for place in places if place in places_kept]


def most_striking_columns(series: Series, worst: str, wanted: Collection[str], max_columns: int) -> list[int]:
    """Return at most `max_columns` columns of a series in order: those of findings, then the most striking."""
    count = len(series.labels)
    if count <= max_columns:
        return list(range(count))
    values = np.where(series.finite, series.values, np.nan)
    known: Mask = np.any(series.finite, axis=0)
    reach = np.array([np.nanmax(np.abs(values[:, place])) if known[place] else -np.inf for place in range(count)])
    lowest = np.array([np.nanmin(values[:, place]) if known[place] else np.inf for place in range(count)])
    rank = {"high": -reach, "low": lowest}.get(worst, np.arange(count, dtype=float))
    broken: Mask = np.any(series.nonfinite, axis=0)
    ranked = sorted(range(count), key=lambda place: (series.labels[place] not in wanted, not broken[place], rank[place], place))
    return sorted(ranked[:max_columns])


# Numbers for output: five digits, more than a screen can show, and words for non-finite ones.
def short(value: float, digits: int = DIGITS) -> Number:
    """Return a number with `digits` significant digits, or the word for a non-finite one.

    >>> short(0.123456789), short(float("nan")), short(3.0)
    (0.12346, 'NaN', 3)
    """
    if not math.isfinite(value):
        return encode_float(value)
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def column(values: Floats, recorded: Mask, digits: int = DIGITS) -> list[Number | None]:
    """Return values (N,) for output; None where nothing is recorded."""
    cells = zip(values.tolist(), recorded.tolist(), strict=True)
    return [short(value, digits) if known else None for value, known in cells]
