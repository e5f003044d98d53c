"""Where two runs diverge: the first step at which they differ in any bit, or by more than noise explains."""

from collections.abc import Collection, Iterator, Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ckaudit.contract.schema.diff import Departure
from ckaudit.contract.schema.numbers import Number, to_word
from ckaudit.diff.align import Paired, pair
from ckaudit.diff.checkpoint_values import RANK_FACTS, SECTIONS, tells_time
from ckaudit.diff.noise import Stretches, quantile
from ckaudit.diff.run_pair import RunPair
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
from ckaudit.run.medians import median
from ckaudit.run.robust import MAD_TO_SIGMA, resolution
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Mask, Series

EXACT: tuple[Metric, ...] = (learning_rate, tokens_per_update)
"""Decided by the configuration, not by chance."""

WHOLE: Mapping[Metric, float] = {train_loss_raw: 0.2, grad_global_norm: 0.4, update_to_weight_global: 0.4, val_loss: 0.4}
"""One number of the whole run; where it leaves the band, the runs part. With each what a seed does to its level, over the
noise of one point: see docs/diff-calibration.md."""

PLACES: tuple[Metric, ...] = (activation_rms, attn_entropy, gradient_norm, update_norm, update_to_weight, weight_norm)
"""A number of each tensor, layer or head, in the order in which a step computes them."""

ASKED: tuple[Metric, ...] = (slice_val_loss, grad_clip_rate, tokens_seen, step_time, tokens_per_sec)
"""What the questions look at besides."""

NAMES: Mapping[str, str] = {
    "activations.*.rms": "activation_rms",
    "attention.*.entropy_per_head": "attn_entropy",
    "gradients.*.norm": "gradient_norm",
    "weights.*.frobenius_norm": "weight_norm",
    "weight_deltas.*.relative": "update_to_weight",
}
"""Paths that are a metric as they stand, one of each section: what follows the parting is told by these alone."""

ORDER = (
    "data",
    "learning_rate",
    "activations",
    "attention",
    "train_loss_raw",
    "gradients",
    "grad_global_norm",
    "weight_deltas",
    "weights",
    "optimizer",
)
"""How a step comes about: what stands first can be the reason of what stands behind."""

MOST = 20

DECIDED = "the configuration decides it"

_Ranked = tuple[int, int, int, Departure]


def reads() -> frozenset[str]:
    """Return the checkpoint paths that a comparison looks at."""
    return frozenset[str]().union(*(metric.paths for metric in (*EXACT, *WHOLE, *PLACES, *ASKED)))


def is_of_machine(path: str) -> bool:
    """Tell whether a scalar or a path into the checkpoints tells of the machine and not of the training."""
    section, _, rest = path.partition(".")
    return tells_time(path) or section in SECTIONS or (section == "rank_facts" and rest in RANK_FACTS)


def place_in_step(path: str) -> int:
    """Return how early in a step a quantity comes about."""
    section = path.partition(".")[0]
    return ORDER.index(section) if section in ORDER else len(ORDER)


class Parting(Struct, frozen=True, kw_only=True):
    """Where two runs part.

    Attributes:
        departures: What left the band, in order of steps, and within a step in that of cause and forward pass.
        shared_until: Last step up to which both agree in every bit; None: they never do, or nobody can tell.
        is_same: Whether all that both recorded agrees in every bit.
        aside: A sentence on a difference that counts for nothing; empty: there is none.
    """

    departures: tuple[Departure, ...] = ()
    shared_until: int | None = None
    is_same: bool = False
    aside: str = ""


def parting(both: RunPair, *, without: Collection[Metric] = (), one_plan: bool = False, first_points: int = 3) -> Parting:
    """Return where two runs part.

    Runs whose first losses agree in every bit are the same training until their first difference: there is no noise to
    allow for. Others are held against what noise explains.

    Args:
        both: The runs.
        without: Numbers of the whole run that mean something else in each of the two.
        one_plan: Whether both record the same settings and no planned learning rate: rates that part after the losses, where
            one run holds its own, then follow the loss. That alone is no parting.
        first_points: Losses that must agree for that; two of one seed do, two of different seeds agree in none.
    """
    if both.axes.axis == "step" and _begin_alike(both, first_points):
        return _in_bits(both)
    departures = sorted((*_exact(both), *_whole(both, without)), key=lambda departure: departure.step)
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
        departures += far_places(both)
    return Parting(departures=tuple(sorted(departures, key=lambda departure: departure.step)[:MOST]))


def _begin_alike(both: RunPair, points: int, *, coarse: float = 1e-5, more: int = 10) -> bool:
    """Tell whether the first losses agree in every bit; of a log rounded to `coarse` or worse, `more` times as many."""
    paired = both.paired(train_loss_raw)
    rows: Mask = np.any(paired.recorded, axis=1)
    if not rows.any():
        return False
    first = paired.left[rows, 0][: points * more]
    first = first[np.isfinite(first)]
    rounded = len(first) > 0 and resolution(first).min() > coarse * np.abs(first).max()
    needed = min(points * more, int(rows.sum())) if rounded else points
    different = np.flatnonzero(np.any(paired.unequal, axis=1)[rows])
    return int(rows.sum()) >= max(points, needed) and (not len(different) or int(different[0]) >= needed)


def _in_bits(both: RunPair) -> Parting:
    """Return the first difference of everything recorded.

    What follows is told of the scalars and of one quantity of each section; of another one only where it differs before.
    """
    shown: list[_Ranked] = []
    hidden: list[_Ranked] = []
    for path, left, right in _channels(both.left.run, both.right.run):
        is_told = path in NAMES or ".*" not in path
        (shown if is_told else hidden).extend(_first_of(path, left, right, both))
    start = min((entry[0] for entry in shown), default=None)
    first = sorted(shown + [entry for entry in hidden if start is None or entry[0] < start], key=lambda entry: entry[:3])
    last = min(int(both.left.run.last_step or 0), int(both.right.run.last_step or 0))
    until = first[0][0] - 1 if first else last
    return Parting(departures=tuple(entry[3] for entry in first[:MOST]), shared_until=until, is_same=not first)


def _first_of(path: str, left: Series, right: Series, both: RunPair, *, max_places: int = 5) -> Iterator[_Ranked]:
    """Yield step, place in the step, place in the model and departure of the first places of a series that differ."""
    paired = pair(left, right, both.axes)
    cells = [(int(paired.steps[row]), column, row) for row, column in _first_unequal(paired)]
    for step, column, row in sorted(cells)[:max_places]:
        yield step, place_in_step(path), column, _departure(path, paired, row, column)


def _channels(left: Run, right: Run) -> Iterator[tuple[str, Series, Series]]:
    """Yield every series that both recorded, those of the machine left out."""
    for one, two in ((left.scalars, right.scalars), (left.sections, right.sections)):
        yield from ((path, one[path], two[path]) for path in one if path in two and not is_of_machine(path))


def _first_unequal(paired: Paired) -> Iterator[tuple[int, int]]:
    """Yield row and column of the first cell of each label that differs, or that only one recorded beside others."""
    unequal = paired.unequal | paired.one_sided
    yield from ((int(np.argmax(unequal[:, column])), int(column)) for column in np.flatnonzero(unequal.any(axis=0)))


def _departure(path: str, paired: Paired, row: int, column: int) -> Departure:
    name, label = NAMES.get(path, path), paired.labels[column]
    where = None if label in (path, name) else label
    step, place = int(paired.steps[row]), f" of {where}" if where else ""
    left, right = paired.cell(row, column)
    shown = ["not recorded" if value is None else f"{value:.9g}" for value in (left, right)]
    return Departure(
        statistic=name,
        where=where,
        step=step,
        left=_word(left),
        right=_word(right),
        unit=paired.unit,
        message=f"step {step}: {name}{place} is {shown[0]} in the first and {shown[1]} in the second; until then all was equal",
    )


def _word(value: float | None) -> Number | None:
    return None if value is None else to_word(value)


def _exact(both: RunPair, *, slack: float = 1e-6) -> Iterator[Departure]:
    """Yield the first difference of what the configuration decides.

    Args:
        both: The runs.
        slack: Relative difference that another order of arithmetic, or a log of seven digits, makes.
    """
    if both.axes.axis != "step":
        return
    for metric in EXACT:
        paired = both.paired(metric)
        size = np.maximum(np.abs(paired.left), np.abs(paired.right))
        known = paired.finite if metric is learning_rate else paired.finite & _is_steady(paired)
        apart = known & (np.abs(paired.left - paired.right) > slack * size)
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


def _follows_loss(both: RunPair, departure: Departure) -> bool:
    """Tell whether a learning rate departs as one does that is lowered when the loss stands still: one run holds its own."""
    losses, rates = both.paired(train_loss_raw), both.paired(learning_rate)
    if departure.statistic != learning_rate.name or not losses.unequal[losses.steps < departure.step].any():
        return False
    row = int(np.searchsorted(rates.steps, departure.step))
    held = [bool(row) and values[row, 0] == values[row - 1, 0] for values in (rates.left, rates.right)]
    return held[0] != held[1]


def _is_steady(paired: Paired, *, share: float = 0.9) -> Mask:
    """Return the cells in which both are at their usual value, if they mostly are: batches with pads are of chance."""
    steady = np.isfinite(paired.left)
    for values in (paired.left, paired.right):
        known = values[np.isfinite(values)]
        at_median = values == (median(known) if len(known) else np.nan)
        steady &= at_median & (at_median.sum() >= share * len(known))
    return np.asarray(steady)


def _whole(both: RunPair, without: Collection[Metric], *, share: float = 0.01) -> Iterator[Departure]:
    """Yield where each number of the whole run leaves the band for good.

    Args:
        both: The runs.
        without: What is left out.
        share: Of replicas that leave it by chance, all numbers and stretches together.
    """
    aside = {*without, *((train_loss_raw,) if both.axes.axis == "loss" else ())}
    for metric, seed in WHOLE.items():
        stretches = None if metric in aside else both.stretches(metric, seed=seed)
        if stretches is None:
            continue
        limit = quantile(share / len(WHOLE) / len(stretches.first), stretches.freedom)
        row = _leaves(np.abs(stretches.excess) > limit)
        if row is not None:
            yield _left_band(metric.name, metric.unit, stretches, row, limit)


def _leaves(outside: Mask, *, lasting: int = 3, among: int = 5) -> int | None:
    """Return the first stretch outside of which `lasting` of `among` in a row are; of fewer than `among`, most."""
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


# Tensors, layers and heads that have come further apart than others of their kind, where runs with different noise diverge.
def far_places(both: RunPair, *, of_each: int = 4, share: float = 0.01, min_deviation: float = 0.05) -> list[Departure]:
    """Return where each quantity first leaves its band for good, `of_each` places of it at most.

    The band of log ratios holds what a tensor's own ratio does from checkpoint to checkpoint, and how far all tensors
    lay apart at the first one, where only seeds tell them.

    Args:
        both: The runs.
        of_each: Places of a quantity.
        share: Of places outside by chance, all checkpoints together.
        min_deviation: Smallest standard deviation of a log ratio that is believed.
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
        band = limit * np.sqrt(_own_noise(ratio) ** 2 + max(min_deviation, _at_first(ratio)) ** 2)  # (P,)
        cells = sorted(_first_lasting(np.abs(ratio) > band), key=lambda cell: (cell[0], cell[1]))
        departures += [_place_departure(metric.name, paired, row, column, float(band[column])) for row, column in cells[:of_each]]
    return departures


def _own_noise(ratio: Floats) -> Floats:
    """Return how far each column goes from one row to the next, as a standard deviation, shape (P,)."""
    moves = row_medians(np.ascontiguousarray(np.abs(np.diff(ratio, axis=0)).T))
    return np.asarray(MAD_TO_SIGMA * np.nan_to_num(moves) / np.sqrt(2))


def _at_first(ratio: Floats) -> float:
    """Return how far apart the columns lie in the first row that has any."""
    rows = np.flatnonzero(np.isfinite(ratio).any(axis=1))
    return float(MAD_TO_SIGMA * np.nanmedian(np.abs(ratio[rows[0]]))) if len(rows) else 0.0


def _first_lasting(outside: Mask, *, lasting: int = 3) -> Iterator[tuple[int, int]]:
    """Yield the row and column of the first of `lasting` rows outside in a row, or of all that are left."""
    rows = len(outside)
    for column in np.flatnonzero(outside.any(axis=0)):
        held = outside[:, column]
        for row in np.flatnonzero(held):
            if held[row : min(rows, row + lasting)].all() and rows - row >= min(lasting, 2):
                yield int(row), int(column)
                break


def _place_departure(name: str, paired: Paired, row: int, column: int, band: float) -> Departure:
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
