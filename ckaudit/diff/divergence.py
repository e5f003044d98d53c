"""Divergence of two runs: the first step at which they differ by more than noise explains."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from ckaudit.contract.schema.diff import Departure, Unlike
from ckaudit.contract.schema.numbers import encode_float
from ckaudit.diff.align import PairedSeries
from ckaudit.diff.noise import Stretches, quantile
from ckaudit.diff.run_pair import RunPair
from ckaudit.diff.shared_start import MAX_DEPARTURES, RATE_DIGITS, Parting, first_difference, start_identical
from ckaudit.metrics import Metric
from ckaudit.metrics.activations import activation_rms
from ckaudit.metrics.attention import attn_entropy
from ckaudit.metrics.gradients import grad_global_norm, gradient_norm
from ckaudit.metrics.loss import slice_val_loss, train_loss_raw, val_loss
from ckaudit.metrics.optimizer import grad_clip_rate, learning_rate
from ckaudit.metrics.progress import tokens_per_update, tokens_seen
from ckaudit.metrics.reductions import row_medians
from ckaudit.metrics.speed import step_time, tokens_per_sec
from ckaudit.metrics.weights import update_norm, update_to_weight, update_to_weight_global, weight_norm
from ckaudit.metrics.words import element_type
from ckaudit.run.medians import median
from ckaudit.run.robust import MAD_TO_SIGMA
from ckaudit.run.series import Floats, Mask

SET_BY_CONFIGURATION: tuple[Metric, ...] = (learning_rate, tokens_per_update)
"""Decided by the configuration, not by chance."""

RUN_NUMBERS: Mapping[Metric, float] = {train_loss_raw: 1.0, grad_global_norm: 0.5, update_to_weight_global: 0.5, val_loss: 1.0}
"""Quantities of the whole run; if one leaves its band, the runs part. Each has the effect of a seed on its level, relative to the
noise of one point: see docs/diff-calibration.md."""

PLACES: tuple[Metric, ...] = (activation_rms, attn_entropy, gradient_norm, update_norm, update_to_weight, weight_norm)
"""Quantities of each tensor, layer or head, in the order in which a step computes them."""

READ_BY_QUESTIONS: tuple[Metric, ...] = (slice_val_loss, grad_clip_rate, tokens_seen, step_time, tokens_per_sec, element_type)
"""Further quantities that the questions read."""

DECIDED = "the configuration decides it"


def reads() -> frozenset[str]:
    """Return the checkpoint paths that a comparison reads."""
    return frozenset[str]().union(
        *(metric.paths for metric in (*SET_BY_CONFIGURATION, *RUN_NUMBERS, *PLACES, *READ_BY_QUESTIONS))
    )


def first_divergence(
    both: RunPair, *, without: Collection[Metric] = (), one_plan: bool = False, settings: Sequence[Unlike] = ()
) -> Parting:
    """Return where two runs part.

    Runs that begin as one training are identical until their first difference, without any noise. Other runs are compared with
    the noise.

    Args:
        both: The runs.
        without: Quantities of the whole run that have different meanings in the two runs.
        one_plan: Whether both record the same settings and no planned learning rate. Learning rates that part after the losses,
            while one run keeps its own, then follow the loss; that alone is no parting.
        settings: Differences in configuration, model and precision. They act from the first step on, so runs that leave the noise
            at any step have parted there.
    """
    if both.axes.axis == "step" and start_identical(both):
        return first_difference(both)
    departures = sorted((*_exact(both), *_broken(both), *_whole(both, without)), key=lambda departure: departure.step)
    if one_plan:
        departures = [
            replace(departure, message=departure.message.replace(DECIDED, "under the same settings it follows the loss"))
            if _follows_loss(both, departure)
            else departure
            for departure in departures
        ]
    if one_plan and len(departures) == 1 and _follows_loss(both, departures[0]):
        where = f"from step {departures[0].step} on the learning rates differ, and the losses did before: under the same settings"
        return Parting(aside=f"{where} that is a schedule which follows the loss, and no change")
    if departures:
        # Places are very many: one that leaves its band before any quantity of the whole run does so by chance.
        places = [place for place in first_departures(both) if place.step >= departures[0].step]
        departures = [*_configured(both, settings), *departures, *places]
    return Parting(departures=tuple(sorted(departures, key=lambda departure: departure.step)[:MAX_DEPARTURES]))


def _exact(both: RunPair) -> Iterator[Departure]:
    """Yield the first difference of the quantities that the configuration decides."""
    if both.axes.axis != "step":
        return
    for metric in SET_BY_CONFIGURATION:
        paired = both.paired(metric)
        size = np.maximum(np.abs(paired.left), np.abs(paired.right))
        known = paired.finite if metric is learning_rate else paired.finite & _is_steady(paired)
        apart = known & (np.abs(paired.left - paired.right) > RATE_DIGITS * size)
        if apart.any():
            row = int(np.argmax(apart.any(axis=1)))
            column = int(np.argmax(apart[row]))
            left, right, step = float(paired.left[row, column]), float(paired.right[row, column]), int(paired.steps[row])
            yield Departure(
                statistic=metric.name,
                step=step,
                left=left,
                right=right,
                unit=paired.unit,
                message=f"step {step}: {metric.name} is {left:.4g} in the first and {right:.4g} in the second; {DECIDED}",
            )


def _configured(both: RunPair, settings: Sequence[Unlike]) -> Iterator[Departure]:
    """Yield each setting that differs, at the first step of both."""
    steps = both.paired(train_loss_raw).steps
    for setting in settings if len(steps) and both.axes.axis == "step" else ():
        values = [_number(side) for side in (setting.left, setting.right)]
        yield Departure(
            statistic=setting.name,
            step=int(steps[0]),
            left=values[0],
            right=values[1],
            message=f"step {int(steps[0])}: {setting.message}; {DECIDED}",
        )


def _number(word: str | None) -> float | None:
    try:
        return None if word is None else float(word)
    except ValueError:
        return None


def _broken(both: RunPair) -> Iterator[Departure]:
    """Yield the first step from which on the loss of one run is NaN or infinite to its end."""
    paired = both.paired(train_loss_raw)
    rows = np.flatnonzero(paired.recorded.any(axis=1))
    broken = [~np.isfinite(values[rows, 0]) for values in (paired.left, paired.right)] if len(rows) else []
    if broken and broken[0][-1] != broken[1][-1]:
        held = broken[0] | broken[1]
        row = int(rows[len(held) - int(np.argmin(held[::-1])) if not held.all() else 0])
        left, right, step = float(paired.left[row, 0]), float(paired.right[row, 0]), int(paired.steps[row])
        yield Departure(
            statistic=train_loss_raw.name,
            step=step,
            left=encode_float(left),
            right=encode_float(right),
            unit=paired.unit,
            message=f"from step {step} on {train_loss_raw.name} is no number in the {'first' if broken[0][-1] else 'second'}",
        )


def _follows_loss(both: RunPair, departure: Departure) -> bool:
    """Tell whether a learning rate departs like one that is lowered when the loss stalls: the other run keeps its own."""
    losses, rates = both.paired(train_loss_raw), both.paired(learning_rate)
    if departure.statistic != learning_rate.name or not losses.unequal[losses.steps < departure.step].any():
        return False
    row = int(np.searchsorted(rates.steps, departure.step))
    held = [bool(row) and values[row, 0] == values[row - 1, 0] for values in (rates.left, rates.right)]
    return held[0] != held[1]


def _is_steady(paired: PairedSeries, *, share: float = 0.9) -> Mask:
    """Return the cells in which both have their usual value, if they mostly do: batches with padding vary by chance."""
    steady = np.isfinite(paired.left)
    for values in (paired.left, paired.right):
        known = values[np.isfinite(values)]
        at_median = values == (median(known) if len(known) else np.nan)
        steady &= at_median & (at_median.sum() >= share * len(known))
    return np.asarray(steady)


def _whole(both: RunPair, without: Collection[Metric], *, share: float = 0.01) -> Iterator[Departure]:
    """Yield where each quantity of the whole run leaves its band for good.

    Args:
        both: The runs.
        without: Quantities that are left out.
        share: Share of replicas that leave a band by chance, over all quantities and segments.
    """
    aside = {*without, *((train_loss_raw,) if both.axes.axis == "loss" else ())}
    for metric, seed in RUN_NUMBERS.items():
        stretches = both.evaluation(metric) if metric is val_loss else both.stretches(metric, seed=seed)
        if stretches is None or metric in aside:
            continue
        limit = quantile(share / len(RUN_NUMBERS) / len(stretches.first))
        row = first_stretch_outside(np.abs(stretches.excess) > limit)
        if row is not None:
            yield _left_band(metric.name, metric.unit, stretches, row, limit)


def first_stretch_outside(outside: Mask, *, lasting: int = 3, among: int = 5) -> int | None:
    """Return the first segment outside, if `lasting` of `among` consecutive ones are; with fewer than `among` left, most."""
    if len(outside) < among:
        lasting, among = max(1, -(-len(outside) * lasting // among)), max(1, len(outside))
    counts = np.lib.stride_tricks.sliding_window_view(outside, min(among, len(outside))).sum(axis=1)
    if not (counts >= lasting).any():
        return None
    first = int(np.argmax(counts >= lasting))
    return first + int(np.argmax(outside[first:]))


def _left_band(name: str, unit: str, stretches: Stretches, row: int, limit: float) -> Departure:
    left, right, band = float(stretches.left[row]), float(stretches.right[row]), float(limit * stretches.spread[row])
    step = int(stretches.first[row])
    return Departure(
        statistic=name,
        step=step,
        left=left,
        right=right,
        band=band,
        unit=unit,
        message=f"from step {step} on {name} is {left:.4g} in the first and {right:.4g} in the second; noise explains {band:.2g}",
    )


# Tensors, layers and heads that diverge more than others of their kind, for runs with different noise.
def first_departures(both: RunPair, *, of_each: int = 4, share: float = 0.01, min_deviation: float = 0.05) -> list[Departure]:
    """Return where each quantity first leaves its band for good, at most `of_each` places of it.

    The band of log ratios covers the variation of a tensor's own ratio between checkpoints, and the spread over all tensors at
    the first one, where only the seeds differ.

    Args:
        both: The runs.
        of_each: Maximum number of places per quantity.
        share: Share of places outside by chance, over all checkpoints.
        min_deviation: Minimum standard deviation of a log ratio.
    """
    departures: list[Departure] = []
    for metric in PLACES:
        paired = both.paired(metric)
        if len(paired.steps) < 3 or not len(paired.labels):
            continue
        with np.errstate(all="ignore"):
            ratio = np.log(np.abs(paired.right) / np.abs(paired.left))  # (T, P)
        ratio = np.where(paired.finite & np.isfinite(ratio), ratio, np.nan)
        limit = quantile(share / max(1, ratio.size))
        drawn = _by_draw(both, paired.labels)
        band = limit * np.sqrt(_own_noise(ratio) ** 2 + np.maximum(drawn, max(min_deviation, _at_first(ratio))) ** 2)  # (P,)
        cells = sorted(_first_lasting(np.abs(ratio) > band), key=lambda cell: (cell[0], cell[1]))
        departures += [_place_departure(metric.name, paired, row, column, float(band[column])) for row, column in cells[:of_each]]
    return departures


def _by_draw(both: RunPair, labels: Sequence[str]) -> Floats:
    r"""Return the deviation of the log norms of two draws of each tensor's weights, shape (P,); 0 if its size is not known.

    The norm of n normal numbers has a relative deviation of $1 / \sqrt{2n}$.
    """
    shapes = [fact.shape if (fact := both.left.run.tensors.facts.get(label)) else UNSET for label in labels]
    return np.array([0.0 if shape is UNSET else 1 / max(1, prod(shape)) ** 0.5 for shape in shapes])


def _own_noise(ratio: Floats) -> Floats:
    """Return the standard deviation of each column's changes from row to row, shape (P,)."""
    moves = row_medians(np.ascontiguousarray(np.abs(np.diff(ratio, axis=0)).T))
    return np.asarray(MAD_TO_SIGMA * np.nan_to_num(moves) / np.sqrt(2))


def _at_first(ratio: Floats) -> float:
    """Return the spread of the columns in the first row that has values."""
    rows = np.flatnonzero(np.isfinite(ratio).any(axis=1))
    return float(MAD_TO_SIGMA * np.nanmedian(np.abs(ratio[rows[0]]))) if len(rows) else 0.0


def _first_lasting(outside: Mask, *, lasting: int = 3) -> Iterator[tuple[int, int]]:
    """Yield the row and column of the first of `lasting` consecutive rows outside, or of all remaining rows."""
    rows = len(outside)
    for column in np.flatnonzero(outside.any(axis=0)):
        held = outside[:, column]
        for row in np.flatnonzero(held):
            if held[row : min(rows, row + lasting)].all() and rows - row >= min(lasting, 2):
                yield int(row), int(column)
                break


def _place_departure(name: str, paired: PairedSeries, row: int, column: int, band: float) -> Departure:
    left, right, step = float(paired.left[row, column]), float(paired.right[row, column]), int(paired.steps[row])
    where = paired.labels[column]
    return Departure(
        statistic=name,
        where=where,
        step=step,
        left=left,
        right=right,
        band=abs(left) * float(np.expm1(band)),
        unit=paired.unit,
        message=f"from step {step} on {name} of {where} is {left:.4g} in the first and {right:.4g} in the second, "
        f"a factor of {right / left:.3g}; noise explains {np.exp(band):.3g}",
    )
