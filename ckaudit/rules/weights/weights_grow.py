"""WGT002: weights grow without bound."""

from collections.abc import Iterator

import numpy as np
from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.tensor_names import is_bias
from ckaudit.metrics.loss_function import explained_share
from ckaudit.metrics.reductions import row_medians
from ckaudit.metrics.weights import weight_std
from ckaudit.rules.rule import FACTS, Hit, Skip, rule, too_few
from ckaudit.run.medians import median
from ckaudit.run.series import Floats, Series, single
from ckaudit.run.spans import spans
from ckaudit.run.tensor_groups import MIN_LIKE_BLOCKS
from ckaudit.run.tensors import BRANCHES, TensorTable, table_of

MIN_EXPLAINED_SHARE = 0.5
"""A model that saves this share of a constant guess's loss has useful weights, however large they have grown."""

ABSURD_STD = 1000.0
"""Standard deviation that no tensor has, initial or trained: one checkpoint of it is enough."""


MAX_SMALLER = 3.0
"""A matrix that began so many times smaller than its like is meant to grow."""


@rule("WGT002", severity="sev2", needs=[weight_std], wants=[FACTS, explained_share], unit="1")
def weights_grow(
    std: Series,
    facts: Manifest | None,
    explained: Series | None,
    *,
    max_gain: float = 1.5,
    max_growth: float = 5.0,
    max_single_gain: float = 10.0,
    max_single_growth: float = 10.0,
    max_std: float = 10.0,
    min_points: int = 3,
) -> Iterator[Hit | Skip]:
    r"""Weights grow without bound.

    ## What it checks
    The gain of each matrix, $\sigma\sqrt{\mathrm{fan\,in}}$: about how many times it multiplies the size of its input. Weights
    run away where one of these holds at `min_points` checkpoints in a row:

    - All weights: the median gain is over `max_gain`, and the median growth over `max_growth` times the first gain (lab: healthy
      runs end at up to 1.1, or grow by less than a half; learning rates ten times too high come to 1.7 to 3.2).
    - A single matrix: its gain is over `max_single_gain`, and it grew `max_single_growth` times, its largest step left out.
    - Where no shapes are known: the median tensor's standard deviation is above `max_std`, ten times that of the widest usual
      initialization, and `max_single_growth` times what it began with.
    - A median standard deviation above a thousand is reported always, where no shapes are known. So is a matrix that has grown
      `max_growth` times as much as the same matrix does in the median block, of three at least (healthy families: 1.6).
    ## Why it matters
    Outputs and attention logits grow with the weights, until softmax saturates and updates no longer matter (D4.5, DR-2).
    ## False alarms
    Some weights grow and are well:

    - A small initialization grows many times over without harm; what counts is where it comes to.
    - Embeddings have no gain, nor have tensors that do not multiply their inputs. What a recurrent cell puts out is bounded by
      its gates, and a linear model has no layer behind its one matrix.
    - The matrix of a head or of a single output, as of a value or a reward, has no layer behind it either and grows to the size
      of its targets: alone it is a note.
    - Targets in the thousands need such weights: where the model saves half of what a constant guess costs at its end, all
      matrices together are a note.
    """
    yield from too_few(std, min_points)
    gains = _gains(std, facts)
    if not gains.labels:
        hits: list[Hit | Skip] = list(_of_unknown_shapes(std, max_std, max_single_growth, min_points))
        hits += _beside_its_like(std, table_of(facts), max_growth, min_points)
        yield from hits or [Skip("not_recorded", "needs the shapes of the matrices")]
        return
    first = _first(gains.values)
    with np.errstate(all="ignore"):
        grown = gains.values / first
    middle, times = row_medians(gains.values), row_medians(grown)
    series = single("median matrix", "1", gains.steps, middle)
    is_useful = _ends_well(explained)
    together = ((middle > max_gain) & (times > max_growth) & (len(gains.labels) > 1))[:, None]
    for span in spans(series, together, min_points=min_points):
        yield Hit.over(
            span,
            "note" if is_useful else "sev2",
            "the gain of the median matrix has come to {value:.3g}; above {limit:.2g} outputs grow layer by layer",
            badness=series.values,
            limit=max_gain,
        )
    alone = (gains.values > max_single_gain) & (np.nan_to_num(grown / _largest_step(gains.values)) > max_single_growth)
    tensors = table_of(facts)
    for span in spans(gains, alone & ~together, min_points=min_points):
        yield Hit.over(
            span,
            "note" if _is_last(tensors, span.label) else "sev2",
            "the gain of {where} has come to {value:.3g}, and grows; above {limit:.2g} its outputs run away",
            badness=gains.values,
            limit=max_single_gain,
        )


def _ends_well(explained: Series | None) -> bool:
    """Tell whether a model saves a good part of what a constant guess costs at its last three checkpoints."""
    shares = explained.values[explained.finite[:, 0], 0] if explained is not None and explained.labels else np.empty(0)
    return len(shares) > 0 and median(shares[-3:]) > MIN_EXPLAINED_SHARE


def _is_last(tensors: TensorTable, name: str) -> bool:
    """Tell whether a matrix makes the outputs of the model."""
    fact = tensors.facts.get(name)
    return tensors.kind(name) == "head" or (fact is not None and fact.shape is not UNSET and fact.shape[0] == 1)


def _of_unknown_shapes(std: Series, max_std: float, max_growth: float, min_points: int) -> Iterator[Hit]:
    """Yield where the median tensor's elements have grown out of any usual size."""
    middle = single("median tensor", "1", std.steps, row_medians(np.where(std.finite, std.values, np.nan)))
    with np.errstate(all="ignore"):
        grown = middle.values / _first(middle.values)
    absurd = np.nan_to_num(middle.values, nan=0.0, posinf=0.0) > ABSURD_STD
    grows = (middle.values > max_std) & (grown > max_growth)
    for span in spans(middle, grows | absurd, min_points=1 if absurd.any() else min_points):
        yield Hit.over(
            span,
            "sev2",
            "the standard deviation of the median tensor has come to {value:.3g}; no usual initialization is above 1",
            badness=middle.values,
            limit=max_std,
        )


def _beside_its_like(std: Series, table: TensorTable, max_growth: float, min_points: int) -> Iterator[Hit]:
    """Yield matrices whose elements have grown many times as much as those of the same matrix in other blocks."""
    first, roles = _first(std.values), table.roles(std.labels)
    more = np.full(std.values.shape, np.nan)
    with np.errstate(all="ignore"):
        grown = std.values / first
    columns_of: dict[str, list[int]] = {}
    for column, (name, role) in enumerate(zip(std.labels, roles, strict=True)):
        if table.kind(name) in BRANCHES and not is_bias(name) and first[column] > 0:
            columns_of.setdefault(role, []).append(column)
    for columns in columns_of.values():
        if len(columns) >= MIN_LIKE_BLOCKS:
            alike = [column for column in columns if first[column] >= median(first[columns]) / MAX_SMALLER]
            with np.errstate(all="ignore"):
                more[:, alike] = grown[:, alike] / row_medians(grown[:, columns])[:, None]
    for span in spans(std, np.nan_to_num(more) > max_growth, min_points=min_points):
        yield Hit.over(
            span,
            "sev2",
            "the elements of {where} have grown {value:.3g} times as much as those of the same matrix in other blocks",
            badness=more,
            limit=max_growth,
        )


def _gains(std: Series, facts: Manifest | None) -> Series:
    tensors = table_of(facts)
    wide = {name: np.prod(fact.shape[1:]) for name, fact in tensors.facts.items() if fact.shape and len(fact.shape) >= 2}
    multiplies = {name for name in wide if tensors.kind(name) not in ("embedding", "recurrent") and tensors.is_factor(name)}
    matrices = std.only(lambda name: name in multiplies).recorded_rows()
    root = np.sqrt([float(wide[name]) for name in matrices.labels])
    values = np.where(matrices.finite, matrices.values * root if len(root) else matrices.values, np.nan)
    return Series("gain", "1", matrices.steps, matrices.labels, values, matrices.recorded)


def _first(values: Floats) -> Floats:
    """Return the first positive value of each column, shape (P,), NaN where there is none."""
    if not len(values):
        return np.full(values.shape[1], np.nan)
    started = np.isfinite(values) & (values > 0)
    rows = started.argmax(axis=0)
    return np.where(started.any(axis=0), values[rows, np.arange(values.shape[1])], np.nan)


def _largest_step(values: Floats) -> Floats:
    """Return the largest growth of each column from one row to the next, up to each row, shape (T, P)."""
    with np.errstate(all="ignore"):
        steps = np.vstack([np.ones((1, values.shape[1])), values[1:] / values[:-1]])
    return np.maximum.accumulate(np.nan_to_num(steps, nan=1.0, posinf=1.0), axis=0)
