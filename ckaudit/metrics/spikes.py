"""Spikes: distance of a point from the points before it, in units of their spread, and the flagged points."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ckaudit.metrics.gradients import grad_global_norm
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.metric import Metric, metric
from ckaudit.run.blocks import by_blocks
from ckaudit.run.robust import MAD_TO_SIGMA, resolution
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Mask, Series, Steps

WINDOW = 50
"""Points that a spike is compared with (F15)."""

MEMORY = 2 * WINDOW
"""Points that contain a window of finite ones, unless more than every second point is NaN."""


Piece = TypeVar("Piece")

Result = TypeVar("Result")


class SpikeBaseline(Struct, frozen=True, eq=False):
    """Statistics of the points before each point, all shape (T, P); NaN until there are enough of them.

    Attributes:
        median: Their median.
        spread: Their scaled MAD, with a floor in case a rounded log makes it 0.
    """

    median: Floats
    spread: Floats


@metric(unit="1", reads=[train_loss_raw], source="F15; Iglewicz & Hoaglin 1993", memory=MEMORY)
def loss_excess(run: Run) -> Series:
    r"""Distance of the training loss above its last 50 points in robust standard deviations.

    $$z_t = \frac{L_t - m_t}{\max(1.4826\,\mathrm{MAD}_t, f_t)}, \qquad m_t = \operatorname{median}(L_{t-50}, \dots, L_{t-1})$$

    Shape (T, 1). See baseline for the floor f. Not recorded for the first 50 finite points; NaN if the loss is not finite.
    """
    return _excess(run, train_loss_raw)


@metric(unit="1", reads=[train_loss_raw], source="playbook TRG-1 and D4.1", memory=MEMORY)
def loss_over_median(run: Run) -> Series:
    r"""Training loss relative to the median of its last 50 points.

    $$L_t / \operatorname{median}(L_{t-50}, \dots, L_{t-1})$$

    Shape (T, 1). Not recorded for the first 50 finite points, nor if the median is not positive.
    """
    return _over_median(run, train_loss_raw)


@metric(unit="1", reads=[grad_global_norm], source="F15; Iglewicz & Hoaglin 1993", memory=MEMORY)
def grad_norm_excess(run: Run) -> Series:
    r"""Distance of the global gradient norm above its last 50 points in robust standard deviations.

    $$z_t = \frac{g_t - m_t}{\max(1.4826\,\mathrm{MAD}_t, f_t)}, \qquad m_t = \operatorname{median}(g_{t-50}, \dots, g_{t-1})$$

    Shape (T, 1). See baseline for the floor f. Not recorded for the first 50 finite points; NaN if the norm is not finite.
    """
    return _excess(run, grad_global_norm)


@metric(unit="1", reads=[grad_global_norm], source="playbook TRG-1 and D4.1", memory=MEMORY)
def grad_norm_over_median(run: Run) -> Series:
    r"""Global gradient norm relative to the median of its last 50 points.

    $$g_t / \operatorname{median}(g_{t-50}, \dots, g_{t-1})$$

    Shape (T, 1). Not recorded for the first 50 finite points, nor if the median is not positive.
    """
    return _over_median(run, grad_global_norm)


@metric(unit="1", reads=[loss_excess], source="F15; playbook D4.1", memory=MEMORY)
def spike_flags(run: Run) -> Series:
    r"""Whether the training loss stands out from its last 50 points: 1 is a flag; a single flag is not an incident yet.

    $$\mathbb{1}[\,L_t > m_t + 6 \cdot 1.4826\,\mathrm{MAD}_t\,]$$

    Shape (T, 1): as loss_excess, counted in points. NaN if the loss is not finite.
    """
    return _flags(loss_excess(run))


@metric(unit="1", reads=[grad_norm_excess], source="F15; playbook D4.1", memory=MEMORY)
def grad_spike_flag(run: Run) -> Series:
    r"""Whether the global gradient norm stands out from its last 50 points.

    $$\mathbb{1}[\,z_t > 6\,]$$

    Shape (T, 1): as grad_norm_excess, counted in points. NaN if the norm is not finite.
    """
    return _flags(grad_norm_excess(run))


def _flags(excess: Series) -> Series:
    return replace(excess, values=np.where(excess.finite, flagged(excess), np.nan))


def flagged(excess: Series, *, k: float = 6.0) -> Mask:
    """Return the points that stand out, shape (T, P); a single one is not an incident yet.

    Args:
        excess: loss_excess or grad_norm_excess.
        k: Robust standard deviations above the median (F15). At 6, a public GPT-2 124M run has 2 single flags in its first 4,000
            losses, and a Pythia 160M seed without a spike none in 5,000.
    """
    return excess.finite & (excess.values > k)


def baseline(series: Series, *, window: int = WINDOW, min_spread_share: float = 1e-3) -> SpikeBaseline:
    r"""Measure the `window` finite points before each point.

    $$f_t = \max(\tfrac12 r_t, 10^{-3}\,|m_t|)$$

    In a log rounded to a few digits the MAD is 0 over whole windows. The floor f keeps the distance of each change of the last
    digit finite; r is the resolution of the window. Measured on fifteen public logs (36,119 losses, healthy or with known
    incidents): 70 flags at k = 6 as logged and 72 rounded to 2 decimals. Rounded to 1 decimal, MAD is 0 in two windows of three:
    3,448 flags with the second part of the floor alone, 32 with both.

    Args:
        series: Any series.
        window: Number of past points.
        min_spread_share: Smallest spread, as a share of the median.
    """
    median, spread = np.full(series.values.shape, np.nan), np.full(series.values.shape, np.nan)
    for column in range(len(series.labels)):
        known = series.finite_rows(column)
        middle, scale = median[known, column], spread[known, column]
        _measure(series.values[known, column], middle, scale, window, min_spread_share)
        median[known, column], spread[known, column] = middle, scale
    return SpikeBaseline(median, spread)


def log_excess_at(values: Floats, rows: Steps, *, window: int = WINDOW) -> Floats:
    r"""Return the distance of some points above the `window` finite ones before them, in robust deviations of logarithms.

    $$z_t = \frac{\log L_t - m_t}{1.4826\,\mathrm{MAD}_t}, \qquad m_t = \operatorname{median}(\log L_{t-50}, \dots)$$

    Shape (K,): infinite if a point or one before it is not positive or not finite, or if there is no scatter. The noise of a loss
    is proportional to its level, and skewed if batches differ much: then logarithms show what is rare.

    Args:
        values: The loss, shape (T,).
        rows: Rows of the points, each with a window of points before it, shape (K,).
        window: Number of past points.
    """
    known = np.flatnonzero(np.isfinite(values))
    places = np.searchsorted(known, rows)
    excess = np.full(len(rows), np.inf)
    for index, (row, place) in enumerate(zip(rows, places, strict=True)):
        before = values[known[max(0, place - window) : place]]
        if len(before) < window or before.min() <= 0 or not 0 < values[row] < np.inf:
            continue
        logs = np.log(before)
        middle = float(np.median(logs))
        spread = MAD_TO_SIGMA * float(np.median(np.abs(logs - middle)))
        excess[index] = (np.log(values[row]) - middle) / spread if spread > 0 else np.inf
    return excess


def _measure(values: Floats, median: Floats, spread: Floats, window: int, min_spread_share: float) -> None:
    """Write the median and the spread of the points before each of some finite values to two columns, all shape (N,)."""
    fine = resolution(values)

    def measure(rows: slice) -> None:
        median[rows], mad = _median_and_mad(_before(values, rows, window))
        steps = _before(fine, rows, window).min(axis=1)
        spread[rows] = np.maximum(MAD_TO_SIGMA * mad, np.maximum(steps / 2, min_spread_share * np.abs(median[rows])))

    for _ in on_each(measure, list(_chunks(window, len(values)))):
        pass


def _chunks(start: int, end: int, *, size: int = 8_192) -> Iterator[slice]:
    """Split the rows from `start` to `end` so that the windows of one piece take a few megabytes."""
    return (slice(first, min(first + size, end)) for first in range(start, end, size))


def _before(values: Floats, rows: slice, window: int) -> Floats:
    """Return a view of the `window` values before each of `rows`, shape (K, window)."""
    return np.lib.stride_tricks.sliding_window_view(values[rows.start - window : rows.stop - 1], window)


def _median_and_mad(before: Floats) -> tuple[Floats, Floats]:
    with np.errstate(over="ignore"):
        middle = _middle(np.sort(before, axis=1))
        return middle, _middle(np.sort(np.abs(before - middle[:, None]), axis=1))


def _middle(ordered: Floats) -> Floats:
    half = ordered.shape[1] // 2
    return (ordered[:, half] + ordered[:, -half - 1]) / 2


def _baseline_of(run: Run, source: Metric) -> tuple[Series, SpikeBaseline]:
    series = source(run)
    return series, run.derived(("baseline", source.name), lambda: baseline(series))


def _excess(run: Run, source: Metric) -> Series:
    series, before = _baseline_of(run, source)
    recorded = series.recorded & _ready(series) & ~(before.spread <= 0)

    def in_spreads(known: Mask, values: Floats, median: Floats, spread: Floats) -> Floats:
        return np.where(known, (values - median) / spread, np.nan)

    with np.errstate(all="ignore"):
        values = by_blocks(in_spreads, series.finite & recorded, series.values, before.median, before.spread)
    return replace(series, values=values, recorded=recorded)


def _over_median(run: Run, source: Metric) -> Series:
    series, before = _baseline_of(run, source)
    recorded = series.recorded & _ready(series) & ~(before.median <= 0)
    with np.errstate(all="ignore"):
        known = series.finite & recorded
        values = by_blocks(lambda known, own, median: np.where(known, own / median, np.nan), known, series.values, before.median)
    return replace(series, values=values, recorded=recorded)


def _ready(series: Series) -> Mask:
    """Tell which points have a whole window of finite points before them."""
    finite = series.finite
    counted = np.cumsum(finite, axis=0, dtype=np.int64)
    counted -= finite
    return np.asarray(counted >= WINDOW)


# NumPy work on many pieces in threads: sorting and array arithmetic release the interpreter lock.
def on_each(function: Callable[[Piece], Result], pieces: Sequence[Piece], *, max_threads: int = 4) -> Iterable[Result]:
    """Return the result of `function` for each piece, in order.

    Args:
        function: A function that does not depend on the order of the pieces.
        pieces: Pieces of work of a few milliseconds or more.
        max_threads: Largest number of threads; more gain little.
    """
    threads = min(max_threads, os.cpu_count() or 1, len(pieces))
    if threads < 2:
        return map(function, pieces)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, pieces))
