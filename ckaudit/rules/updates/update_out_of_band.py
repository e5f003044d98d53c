"""MOVE002: an update is too large or too small for the weights it changes."""

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.evaluation import microbench_score
from ckaudit.metrics.loss import initial_loss_excess, is_solved, train_loss_raw
from ckaudit.metrics.loss_function import explained_share, has_used_inputs
from ckaudit.metrics.movement import median_distance_moved
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.reductions import row_medians
from ckaudit.metrics.weights import (
    is_freshly_drawn,
    relative_movement,
    update_to_weight,
    update_to_weight_global,
    weight_max_abs,
    weight_rms,
)
from ckaudit.rules.rule import FACTS, Hit, Skip, rule, too_few
from ckaudit.run.falls import ends_lower, fall_accelerates, fall_between_thirds
from ckaudit.run.medians import median
from ckaudit.run.run_facts import has_taken_all_steps, is_reinforcement_learning
from ckaudit.run.series import Mask, Series, Steps, at, single
from ckaudit.run.spans import Span, spans
from ckaudit.run.tensors import table_of

MIN_MEDIAN_RATIO = 2.5e-3
"""Least ratio of the median tensor while hardly anything is learnt: healthy runs that begin knowing nothing have 0.005 (lab)."""

MIN_DISTANCE = 1e-3
"""Minimum share of its size that the median tensor of a freshly drawn model has moved when its plan is done. Of 424 healthy
trainings of 60 steps and more, those by Adam and related optimizers move 0.0045 at least, those by plain descent 0.0015."""

NO_DISTANCE = 1e-5
"""Even a fine-tuning moves its weights by more than that: sixty updates of Adam at 1e-8 on weights of 0.05 move as far."""

MIN_EXPLAINED_SHARE = 0.5
"""A model that saves this share of a constant guess's loss has learnt, however large its updates are."""

LEARNT_SHARE = 0.1
"""Share of the first loss that is gone once something is learnt."""


@rule(
    "MOVE002",
    severity="sev2",
    needs=[update_to_weight_global],
    wants=[
        learning_rate,
        update_to_weight,
        initial_loss_excess,
        train_loss_raw,
        explained_share,
        relative_movement,
        weight_rms,
        weight_max_abs,
        FACTS,
        microbench_score,
    ],
    unit="1",
)
def update_out_of_band(
    ratio: Series,
    rate: Series | None,
    tensors: Series | None,
    start: Series | None,
    loss: Series | None,
    explained: Series | None,
    moved: Series | None,
    rms: Series | None,
    largest: Series | None,
    facts: Manifest | None,
    scores: Series | None,
    *,
    warmup: int = 100,
    min_ratio: float = 1e-5,
    max_ratio: float = 1e-1,
    max_matrix_ratio: float = 0.03,
    min_rate_share: float = 0.3,
    min_points: int = 3,
) -> Iterator[Hit | Skip]:
    """An update is too large or too small for the weights it changes.

    ## What it checks
    The norm of one update over the norm of all weights (M11) against a band, at `min_points` points in a row after `warmup`
    steps, while the learning rate is not zero (torchmortem uses the same band):

    - An update above `max_ratio` of all weights is too large.
    - An update below `min_ratio` of all weights is too small, while the rate is above `min_rate_share` of its peak and the loss
      above a tenth of its first.
    - Where tensors were recorded and the band holds, the median tensor's ratio is too large over `max_matrix_ratio` at
      `min_points` checkpoints in a row after `warmup` steps (lab: healthy runs at most 0.02, a learning rate ten times too high
      from 0.036).
    - That is a note where the loss comes down over these checkpoints all the same, the model saves half of what a constant guess
      costs, or the returns of a policy have risen.
    - The median tensor's ratio is too small below 0.0025 while the rate is above `min_rate_share` of its peak, in a run that
      began knowing nothing and has not yet lost a tenth of its first loss (lab: healthy runs from 0.005).
    - The ratio must be that small in the last of those checkpoints too, for a ratio that comes up in time was a beginning.
    - It is not too small while the learning rate still rises, for that may be meant.
    - Nor is it where the model learns: the loss falls by a twentieth and beyond its noise, or faster in the last third of its
      points than in the first, or the model saves a tenth of what a constant guess costs.
    - Once all planned steps are taken, the whole way is too short where the median tensor has come by less than a thousandth of
      its size in a freshly drawn model, or by less than 1e-5 of it in any model.
    ## Why it matters
    Above the band a few steps replace the weights altogether; below it the run stands still.
    ## False alarms
    The first steps of a warm-up lie below the band and are not judged. Nor are a decay to zero and an update of exactly zero,
    which is another illness. Under plain descent updates vanish with the gradient once nothing is left to learn. A fine-tuning
    moves little by intent: it begins with a loss below that of a guess.
    """
    hit = _untrained(ratio, moved, facts)
    if hit and (float(hit.value or 0.0) < NO_DISTANCE or is_freshly_drawn(rms, largest, table_of(facts))):
        yield hit
        return
    if not (ratio.steps > warmup).any():
        yield Skip("too_few_points", f"the first {warmup} steps are not judged, and the run has no more")
        return
    yield from too_few(ratio, min_points)
    judged = ((ratio.steps > warmup) & _rate(ratio.steps, rate, 0.0))[:, None]
    large, small = (ratio.values > max_ratio) & judged, (ratio.values < min_ratio) & (ratio.values > 0) & judged
    small &= _rate(ratio.steps, rate, min_rate_share)[:, None] & ~is_solved(loss, ratio.steps)
    for span in spans(ratio, large, min_points=min_points):
        yield _too_large(span, ratio, max_ratio, "the weights; above {limit:.0e} they do not settle")
    for span in spans(ratio, small, min_points=min_points):
        yield _too_small(span, ratio, min_ratio, "the weights; below {limit:.0e} they stand still")
    if tensors is None or large.any() or small.any():
        return
    matrices = tensors.only(table_of(facts).is_matrix)
    returns = scores if is_reinforcement_learning(facts) else None
    yield from _of_matrices(
        matrices if matrices.labels else tensors, loss, explained, returns, warmup, max_matrix_ratio, min_points
    )
    losses = loss.values[loss.finite] if loss is not None else np.empty(0)
    is_learning = len(losses) > 1 and (fall_accelerates(losses) or ends_lower(losses, min_fall=LEARNT_SHARE / 2))
    if not (_rises(rate) or is_learning or has_used_inputs(explained)):
        middle = _median(tensors)
        at_rate = _rate(middle.steps, rate, min_rate_share) & (middle.steps > warmup // 5)
        full = at_rate & ~_has_learnt(middle.steps, start, loss, LEARNT_SHARE)
        yield from _hardly_moving(middle, at_rate, full, min_points)


def _of_matrices(
    tensors: Series,
    loss: Series | None,
    explained: Series | None,
    returns: Series | None,
    warmup: int,
    limit: float,
    min_points: int,
) -> Iterator[Hit]:
    """Yield where the median tensor's updates are too large for it, as a note where the model has learnt nevertheless."""
    usual = _median(tensors)
    for span in spans(usual, (usual.values > limit) & (usual.steps > warmup)[:, None], min_points=min_points):
        hit = _too_large(span, usual, limit, "the median tensor; above {limit:.0e} it does not settle")
        if _falls(loss, span):
            hit = replace(hit, severity="note", message=hit.message + "; the loss falls all the same")
        elif has_used_inputs(explained, min_share=MIN_EXPLAINED_SHARE) or _has_gained(returns):
            hit = replace(hit, severity="note", message=hit.message + "; the model has learnt all the same")
        yield hit


def _hardly_moving(middle: Series, at_rate: Mask, full: Mask, min_points: int) -> Iterator[Hit]:
    """Yield where the median tensor hardly moves at full rate, unless its updates have grown by the last checkpoints."""
    if not at_rate.any() or median(middle.values[at_rate, 0][-min_points:]) >= MIN_MEDIAN_RATIO:
        return
    is_small = (middle.values < MIN_MEDIAN_RATIO) & (middle.values > 0) & full[:, None]
    for span in spans(middle, is_small, min_points=min_points):
        yield _too_small(
            span, middle, MIN_MEDIAN_RATIO, "the median tensor, and hardly anything is learnt; {limit:.1e} is little"
        )


def _untrained(ratio: Series, moved: Series | None, facts: Manifest | None) -> Hit | None:
    """Return the hit of a training that is over, and whose weights have not left their start."""
    come = median_distance_moved(moved)
    if come is None or come >= MIN_DISTANCE or not has_taken_all_steps(ratio.steps, facts):
        return None
    return Hit.at(
        ratio.steps,
        "sev2",
        "all planned steps are taken, and the median tensor has come {value:.2g} of its size from where it began",
        where="median tensor",
        value=come,
        limit=MIN_DISTANCE,
        worst=-1,
    )


def _falls(loss: Series | None, span: Span) -> bool:
    """Tell whether the loss comes down, beyond its noise, within a span of steps."""
    if loss is None:
        return False
    losses = loss.values[loss.finite[:, 0] & (loss.steps >= span.first) & (loss.steps <= span.last), 0]
    return len(losses) > 2 and not fall_between_thirds(losses).is_none


def _has_gained(returns: Series | None) -> bool:
    """Tell whether the return of a policy's episodes has risen beyond its noise, from its first third to its last."""
    if returns is None:
        return False
    gained = (returns.finite_points(column)[1] for column in range(len(returns.labels)))
    return any(len(values) > 2 and not fall_between_thirds(-values).is_none for values in gained)


def _median(tensors: Series) -> Series:
    """Return the median tensor's value at each checkpoint that has any."""
    known = tensors.recorded_rows()
    return single("median tensor", "1", known.steps, row_medians(np.where(known.recorded, known.values, np.nan)))


def _too_large(span: Span, ratio: Series, limit: float, of_what: str) -> Hit:
    return Hit.over(span, "sev2", "an update changes up to {value:.2g} of " + of_what, badness=ratio.values, limit=limit)


def _too_small(span: Span, ratio: Series, limit: float, of_what: str) -> Hit:
    message = "an update changes as little as {value:.2g} of " + of_what
    return Hit.over(span, "sev2", message, badness=-ratio.values, value=ratio.values, limit=limit)


def _rate(steps: Steps, rate: Series | None, share: float) -> Mask:
    """Return which steps had a learning rate above a share of its peak; true where the rate is not known."""
    if rate is None:
        return np.ones(len(steps), bool)
    known = rate.values[rate.finite]
    return np.asarray(np.nan_to_num(at(rate, steps).values[:, 0], nan=np.inf) > share * (known.max() if known.size else 0.0))


def _rises(rate: Series | None) -> bool:
    """Tell whether the learning rate was still rising at its last line."""
    known = rate.values[rate.finite][-2:] if rate is not None else np.empty(0)
    return len(known) == 2 and bool(known[1] > known[0])


def _has_learnt(steps: Steps, start: Series | None, loss: Series | None, share: float) -> Mask:
    """Return the steps by which the loss had fallen by a share; all where that is unknown, and for a model trained before."""
    unknown = start is None or not start.finite.any() or start.values[start.finite][0] < -0.5
    if unknown or loss is None or not loss.finite.any():
        return np.ones(len(steps), bool)
    first = loss.values[loss.finite][0]
    return np.asarray(~(at(loss, steps).values[:, 0] > (1 - share) * first))
