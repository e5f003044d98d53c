"""Two runs that begin as one training: the first step at which they differ by more than rounding, and what differs there."""

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import UNSET, Struct
from msgspec.structs import replace

from ckaudit.contract.schema.diff import Departure
from ckaudit.contract.schema.numbers import Number, encode_float
from ckaudit.diff.align import PairedSeries, pair_series
from ckaudit.diff.checkpoint_values import POOLED, RANK_FACTS, SECTIONS, tells_time
from ckaudit.diff.run_pair import RunPair
from ckaudit.diff.same_batches import batches
from ckaudit.metrics import Metric
from ckaudit.metrics.gradients import grad_global_norm
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.weights import weight_norm
from ckaudit.metrics.words import element_type
from ckaudit.rules.resume.parity_broken import PARAMETERS
from ckaudit.run.column_builder import GROUPS
from ckaudit.run.robust import resolution
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Mask, Series

NAMES: Mapping[str, str] = {
    "activations.*.rms": "activation_rms",
    "attention.*.entropy_per_head": "attn_entropy",
    "gradients.*.norm": "gradient_norm",
    "weights.*.frobenius_norm": "weight_norm",
    "weight_deltas.*.relative": "update_to_weight",
    GROUPS: learning_rate.name,
}
"""Paths that are a metric by themselves, one for each section; differences after the parting are reported for these only."""

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
"""Quantities in the order of a step: earlier ones can be the cause of later ones."""

MAX_DEPARTURES = 20

WHOLE_RUN = ("train_loss_raw", "val_loss", "learning_rate", "batch_size", "tokens_seen")
"""Scalars in which rounding stays small, or that have none."""

RATE_DIGITS = 1e-6
"""Relative difference of a planned rate from another order of its arithmetic, or from a log of seven digits."""


def is_not_of_training(path: str) -> bool:
    """Tell whether a scalar or a checkpoint path describes the machine or the recorder, not the training."""
    section, _, rest = path.partition(".")
    is_of_machine = tells_time(path) or section in SECTIONS or (section == "rank_facts" and rest in RANK_FACTS)
    return is_of_machine or path.rpartition(".")[2] == POOLED


def place_in_step(path: str) -> int:
    """Return the position of a quantity in the order of a step."""
    section = path.partition(".")[0]
    return ORDER.index(section) if section in ORDER else len(ORDER)


class Parting(Struct, frozen=True, kw_only=True):
    """The point at which two runs part.

    Attributes:
        departures: Quantities that left their band, by step, and within a step by cause and forward pass.
        shared_until: Last step up to which both agree in every bit, or except for rounding; None: they never do, or it is
            unknown.
        is_same: Whether everything that both recorded agrees in every bit.
        is_rounded: Whether they agree up to there only except for rounding.
        is_rounding: Whether all differences, to the end, are rounding.
        aside: A sentence on a difference that does not count; empty: there is none.
    """

    departures: tuple[Departure, ...] = ()
    shared_until: int | None = None
    is_same: bool = False
    is_rounded: bool = False
    is_rounding: bool = False
    aside: str = ""


def start_identical(both: RunPair, *, first_points: int = 3) -> bool:
    """Tell whether two runs are one training until their first difference: the same weights and the same batches.

    They are if their first losses agree in every bit; or if they have the same seed, weights of the same norms, or the same first
    loss, and also the same first batch. Equal weights are not enough: a training with another order of the data begins with the
    same ones.

    Args:
        both: The runs.
        first_points: Number of first losses that must agree if nothing else is known; runs with different seeds agree in none.
    """
    if _losses_agree(both, first_points):
        return True
    weights, loss = _first_agrees(both, weight_norm), _first_agrees(both, train_loss_raw)
    batch = _same_first_batch(both)
    if batch is False or (weights is False and not _same_seed(both)):
        return False
    if batch:
        return bool(weights) or _same_seed(both) or (weights is None and bool(loss))
    return bool(loss) and bool(_first_agrees(both, grad_global_norm))


def _losses_agree(both: RunPair, points: int, *, coarse: float = 1e-5, more: int = 10) -> bool:
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


def _first_agrees(both: RunPair, metric: Metric) -> bool | None:
    """Tell whether the first row of a metric agrees except for rounding; None: there is none, or it is written too coarsely."""
    paired = both.paired(metric)
    rows = np.flatnonzero(paired.finite.any(axis=1))
    if not len(rows):
        return None
    known = paired.finite[rows[0]]
    left, right = paired.left[rows[0], known], paired.right[rows[0], known]
    limit = rounding_scale(both)
    if resolution(left).min() > limit * np.abs(left).max():
        return None
    return bool((np.abs(right - left) <= limit * np.maximum(np.abs(left), np.abs(right))).mean() > 0.9)


def _same_first_batch(both: RunPair) -> bool | None:
    names = [batches(side.run) for side in (both.left, both.right)]
    step = min(names[0].keys() & names[1].keys(), default=None)
    return None if step is None else names[0][step] == names[1][step]


def _same_seed(both: RunPair) -> bool:
    seeds = [side.run.manifest.seed if side.run.manifest else UNSET for side in (both.left, both.right)]
    return seeds[0] is not UNSET and seeds[0] == seeds[1]


def rounding_scale(both: RunPair) -> float:
    """Return the relative difference that the order of additions causes in the coarsest dtype of either computation."""
    types = [element_type(side.run) for side in (both.left, both.right)]
    numbers = {int(number) for series in types for number in np.unique(series.values[series.finite])}
    name = "bfloat16" if 1 in numbers else "float16" if 2 in numbers else "float32"
    return PARAMETERS[name]


def first_difference(both: RunPair, *, first_points: int = 3) -> Parting:
    """Return the first difference in all recorded values, for runs that begin as one training.

    Later differences are reported for scalars and one quantity of each section; for other quantities only if they differ earlier.
    Runs that differ by rounding from their first steps on part where a value jumps beyond it.

    Args:
        both: The runs.
        first_points: First records of the loss, in which another order of arithmetic shows.
    """
    limit = rounding_scale(both)
    channels = {path: pair_series(left, right, both.axes) for path, left, right in _channels(both.left.run, both.right.run)}
    early = _steps_of(both)[:first_points]
    cells = [cell for path, paired in channels.items() for cell in _cells(path, paired, _unequal(path, paired))]
    named = [cell for cell in cells if _is_named(cell.path)]
    start = min((cell.step for cell in named), default=None)
    share = max((cell.share for cell in named if cell.step == start), default=0.0)
    if start is None or not early or start > early[-1] or share > limit:
        return _parting(cells, channels, both, is_rounded=False)
    # Only averages over the whole model count. A tensor whose gradient is zero except for rounding moves under Adam as far as any
    # other, and a maximum or median over many jumps when another element takes its place.
    whole = {path: channels[path] for path in WHOLE_RUN if path in channels}
    leaps = [cell for path, paired in whole.items() for cell in _cells(path, paired, _leaps(path, paired, limit))]
    if leaps:
        return _parting(leaps, channels, both, is_rounded=True)
    largest = max(float(_shares(paired)[_unequal(path, paired)].max(initial=0)) for path, paired in whole.items())
    return replace(_parting(cells, channels, both, is_rounded=False), is_rounding=largest <= limit)


class _Cell(Struct, frozen=True):
    """The first differing cell of a label: its position, and the difference relative to its size."""

    step: int
    place: int
    column: int
    row: int
    path: str
    share: float


def _is_named(path: str) -> bool:
    """Tell whether later differences of a series are reported: for scalars, and for one quantity of each section."""
    return path in NAMES or ".*" not in path


def _parting(cells: list[_Cell], channels: Mapping[str, PairedSeries], both: RunPair, *, is_rounded: bool) -> Parting:
    start = min((cell.step for cell in cells if _is_named(cell.path)), default=None)
    first = [cell for cell in cells if _is_named(cell.path) or start is None or cell.step < start]
    first.sort(key=lambda cell: (cell.step, cell.place, cell.column))
    last = min(int(both.left.run.last_step or 0), int(both.right.run.last_step or 0))
    rates = channels.get(learning_rate.name)
    aside = "" if first or rates is None or not rates.unequal.any() else "the learning rates differ in their last digits alone"
    return Parting(
        departures=tuple(_departure(cell.path, channels[cell.path], cell, is_rounded) for cell in first[:MAX_DEPARTURES]),
        shared_until=first[0].step - 1 if first else last,
        is_same=not first and not aside,
        is_rounded=is_rounded or bool(aside),
        is_rounding=bool(aside),
        aside=aside,
    )


def _cells(path: str, paired: PairedSeries, different: Mask, *, max_places: int = 5) -> list[_Cell]:
    """Return the first differing places of a series, by step and then in the order of the model."""
    shares = _shares(paired)
    first = [(int(np.argmax(different[:, column])), int(column)) for column in np.flatnonzero(different.any(axis=0))]
    cells = [
        _Cell(int(paired.steps[row]), place_in_step(path), column, row, path, float(shares[row, column])) for row, column in first
    ]
    return sorted(cells, key=lambda cell: (cell.step, cell.column))[:max_places]


def _steps_of(both: RunPair) -> list[int]:
    paired = both.paired(train_loss_raw)
    return [int(step) for step in paired.steps[paired.recorded.any(axis=1)]]


def _unequal(path: str, paired: PairedSeries) -> Mask:
    """Return the cells that differ, or that only one run recorded; a planned rate must differ beyond its last digits."""
    unequal = paired.unequal | paired.one_sided
    return np.asarray(unequal & (_shares(paired) > RATE_DIGITS)) if path in (learning_rate.name, GROUPS) else np.asarray(unequal)


def _shares(paired: PairedSeries, *, small: float = 1e-3) -> Floats:
    """Return the relative difference of each cell; for a cell below `small` of its series, relative to that bound.

    A gradient that is zero by design, as for the key bias of attention, contains only rounding of the others.
    """
    with np.errstate(all="ignore"):
        size = np.fmax(np.abs(paired.left), np.abs(paired.right))
        size = np.fmax(size, small * np.max(size, where=np.isfinite(size), initial=0.0))
        share = np.abs(paired.right - paired.left) / size
    share = np.where(paired.finite, np.nan_to_num(share), np.inf)
    return np.asarray(np.where(paired.unequal | paired.one_sided, share, 0.0))


def _leaps(path: str, paired: PairedSeries, limit: float, *, growth: float = 100.0) -> Mask:
    """Return the cells that differ by more than growing rounding errors, shape (T, P).

    Args:
        path: The series.
        paired: Its values.
        limit: Relative difference from rounding in a single step.
        growth: Permitted growth over all earlier differences; rounding grows by a few times per step at most.
    """
    shares = _shares(paired)
    before = np.vstack([np.zeros((1, shares.shape[1])), np.maximum.accumulate(shares, axis=0)[:-1]]) if len(shares) else shares
    return np.asarray(_unequal(path, paired) & (shares > np.maximum(limit, growth * before)))


def _channels(left: Run, right: Run) -> Iterator[tuple[str, Series, Series]]:
    """Yield every series that both recorded, but for those of machine or recorder, and checkpoints' rates if the log has them."""
    logged = learning_rate.name in left.scalars and learning_rate.name in right.scalars
    for one, two in ((left.scalars, right.scalars), (left.sections, right.sections)):
        shared = (path for path in one if path in two and not is_not_of_training(path) and not (logged and path == GROUPS))
        yield from ((path, one[path], two[path]) for path in shared)


def _departure(path: str, paired: PairedSeries, cell: _Cell, is_rounded: bool) -> Departure:
    name, label = NAMES.get(path, path), paired.labels[cell.column]
    where = None if label in (path, name) else label
    place = f" of {where}" if where else ""
    left, right = paired.cell(cell.row, cell.column)
    shown = ["not recorded" if value is None else f"{value:.9g}" for value in (left, right)]
    but = " but for rounding" if is_rounded else ""
    return Departure(
        statistic=name,
        where=where,
        step=cell.step,
        left=_word(left),
        right=_word(right),
        unit=paired.unit,
        message=f"step {cell.step}: {name}{place} is {shown[0]} in the first and {shown[1]} in the second; until then all was "
        f"equal{but}",
    )


def _word(value: float | None) -> Number | None:
    return None if value is None else encode_float(value)
