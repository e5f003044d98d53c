"""The learning rate is too low for anything to be learnt in this time."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.shared.loss_curves import loss_plateau, never_falls_below_start
from ckaudit.causes.shared.rate_course import known_rate
from ckaudit.causes.shared.update_size import gradient_percentile_ratio, movement_per_rate, total_rate_over_spread
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence, Finding
from ckaudit.metrics.gradients import gradient_norm
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.metrics.movement import NEGLIGIBLE_DISTANCE, median_distance_moved, step_over_rate
from ckaudit.metrics.optimizer import clip_coefficient, learning_rate
from ckaudit.metrics.weights import relative_movement, weight_std
from ckaudit.metrics.words import element_type, optimizer_adapts
from ckaudit.rules.attention.uniform_heads import uniform_heads
from ckaudit.rules.loss.initial_loss_off import initial_loss_off
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.loss.loss_rises import loss_rises
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.barely_moving import ONE_UPDATE, barely_moving
from ckaudit.rules.updates.learning_rate_zero import learning_rate_zero
from ckaudit.rules.updates.schedule_off_plan import schedule_off_plan
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.run.column_builder import HALF_TYPES
from ckaudit.run.falls import ends_lower
from ckaudit.run.medians import median
from ckaudit.run.run_facts import is_plain_descent
from ckaudit.run.series import Series
from ckaudit.run.tensors import loss_vocabulary

MOVEMENT_NAME = relative_movement.name


@cause(
    prior=-1.0,
    good_checkpoint="none",
    explains=[update_out_of_band, loss_not_falling, uniform_heads, barely_moving],
    wants=[
        learning_rate,
        weight_std,
        step_over_rate,
        clip_coefficient,
        optimizer_adapts,
        element_type,
        train_loss_raw,
        val_loss,
        relative_movement,
        gradient_norm,
        FACTS,
    ],
    knob="Raise the peak learning rate tenfold, twice if need be, until the loss no longer falls faster.",
    inspect="The sum of all learning rates against the spread of the weights; units and exponents in the configuration.",
    runbook="Nothing to save: restart with the higher rate, and compare the first hundred steps on the same batches.",
)
def learning_rate_too_low(
    findings: Findings,
    rate: Series | None,
    std: Series | None,
    step: Series | None,
    clip: Series | None,
    adapts: Series | None,
    types: Series | None,
    train: Series | None,
    val: Series | None,
    moved: Series | None,
    gradient: Series | None,
    facts: Manifest | None,
    *,
    short: float = 0.1,
    enough: float = 1.0,
    ordinary: float = 0.1,
    smallest: float = 1e-5,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """The learning rate is too low for anything to be learnt in this time.

    The sum of all rates tells how far the weights could have come; without it, how far they came:

    - Adam moves an element by the rate at most. Where all rates together come to less than `short` spreads of the first weights,
      training hardly changes the weights that were drawn.
    - 265 healthy trainings of more than 60 families come to 0.12 spreads and more but for one in a hundred, and to 3.5 at the
      median. 21 trainings at a hundredth of their own rate come to 0.1 at most.
    - Rates that come to more than `enough` spreads could have replaced the weights.
    - Adam's updates are `ordinary` of the rate and more where nothing else holds them back.
    - Without a recorded rate, the distance that weights moved tells the same: a hundredth of their size and less is none. Of 318
      healthy trainings of 60 steps and more, one in a hundred came no further; 8 of 9 at too low a rate.
    - A rate that never comes to `smallest` is below the peaks of nearly all recipes. Where the rate is only too low, the held-out
      loss falls from evaluation to evaluation all the same.
    - Log odds are first guesses.
    """
    yield from _by_other_illnesses(findings, strong)
    far = total_rate_over_spread(rate, std)
    if far is not None and far < short:
        steps, values = known_rate(rate)
        yield supports(
            strong,
            f"with a peak of {values.max():.2g} the rates of all {steps[-1]} steps together are {far:.2g} spreads of the weights",
            learning_rate.name,
        )
    elif far is not None and far > enough:
        yield contradicts(strong, f"the rates of all steps together are {far:.3g} spreads of the weights", learning_rate.name)
    if far is None:
        yield from _by_curves(rate, train, val, smallest, medium)
    yield from _by_fall(train, facts, strong)
    way = median_distance_moved(moved) if rate is None else None
    is_slow = way is not None and way < NEGLIGIBLE_DISTANCE
    if way is not None and (is_slow or way > short):
        yield _by_way(way, train, val, 1.5 * medium if is_slow else strong, is_slow=is_slow)
    if is_plain_descent(adapts):
        yield _of_plain_descent(rate, gradient_percentile_ratio(gradient, facts), strong, medium)
    elif (moves := movement_per_rate(step, rate)) is not None:
        yield _by_movement(median(moves), ordinary, strong, medium)
    bands = [(finding.value, finding.limit) for finding in findings.of(update_out_of_band)]
    if any(value is not None and limit is not None and float(value) < float(limit) for value, limit in bands):
        yield supports(medium, "updates are small for the weights", "MOVE002")
    elif high := findings.first(update_out_of_band):
        yield contradicts(2 * strong, high.message, high)
    yield from () if is_slow else _by_stillness(findings.of(barely_moving), strong, medium)
    if types is not None and np.isin(types.only(lambda name: name.startswith("weights/")).values, HALF_TYPES).any():
        yield contradicts(strong, "weights are kept in half precision, which loses small updates", types.name)
    if clip is not None and clip.finite.any() and (left := median(clip.values[clip.finite])) < 0.1:
        yield contradicts(medium, f"clipping leaves {left:.2g} of the gradient", clip.name)


def _by_other_illnesses(findings: Findings, strong: float) -> Iterator[Evidence]:
    """Judge by other illnesses: a rate that is not the planned one, a wrong first loss, a loss that is thrown up."""
    if zero := findings.first(learning_rate_zero, schedule_off_plan):
        yield contradicts(2 * strong, f"not the planned rate is too low: {zero.message}", zero)
    if before := findings.first(initial_loss_off):
        yield contradicts(strong, f"something else was wrong before: {before.message}", before)
    if (rise := findings.first(loss_rises)) and rise.severity == "sev1":
        yield contradicts(2 * strong, f"steps that are too small throw no loss up: {rise.message}", rise)


def _of_plain_descent(
    rate: Series | None, width: float | None, strong: float, medium: float, *, max_width: float = 30.0, usual: float = 3e-3
) -> Evidence:
    """Judge the rate of plain descent: one rate suits all matrices with gradients of similar size, and is then 0.01 and more."""
    _, values = known_rate(rate)
    if width is None or width > max_width or not values.size or values.max() > usual:
        return contradicts(strong, "plain descent: its rates are not Adam's", optimizer_adapts.name)
    what = f"the rate never exceeds {values.max():.2g}; plain descent is given 0.01 and more in most recipes"
    return supports(medium, what, learning_rate.name)


def _by_fall(train: Series | None, facts: Manifest | None, weight: float, *, min_fall: float = 0.1) -> Iterator[Evidence]:
    """Judge by a loss that has come down by more than `min_fall` and still lies above a guess: it began too high."""
    losses, vocabulary = train.values[train.finite] if train is not None else np.empty(0), loss_vocabulary(facts)
    if vocabulary is None or len(losses) < 2 or not ends_lower(losses, min_fall=min_fall):
        return
    if (level := median(losses[-max(1, len(losses) // 10) :])) > math.log(vocabulary):
        what = f"the loss has come down to {level:.4g}, still above that of a guess: it began too high"
        yield contradicts(weight, what, train_loss_raw.name)


def _by_stillness(still: Sequence[Finding], strong: float, medium: float) -> Iterator[Evidence]:
    """Judge by tensors that barely move: a low rate makes small updates for all, and leaves none quite still or behind others."""
    if alone := [finding for finding in still if not finding.value or float(finding.limit or 0.0) > ONE_UPDATE]:
        yield contradicts(strong, f"a low rate slows all tensors alike: {alone[0].message}", alone[0])
    elif still:
        yield supports(medium, f"updates are small: {still[0].message}", still[0])


def _by_way(way: float, train: Series | None, val: Series | None, weight: float, *, is_slow: bool) -> Evidence:
    """Judge by how far the weights have come, where nobody recorded the rate.

    A large epsilon, a tight clip and half precision slow them as well: that they hardly moved is only half a reason.
    """
    if not is_slow:
        return contradicts(weight, f"the weights have come {way:.2g} of their size in all: far enough to learn", MOVEMENT_NAME)
    if train is not None and never_falls_below_start(train, val) is None:
        return contradicts(weight, "the loss falls below its start: what there is of movement is enough for that", train.name)
    return supports(weight, f"the weights have come {way:.2g} of their size in all: what was drawn is still there", MOVEMENT_NAME)


def _by_movement(moved: float, ordinary: float, strong: float, medium: float) -> Evidence:
    """Judge by how far an element moves in an update, over the learning rate."""
    if moved >= ordinary:
        what = f"an element moves by {moved:.2g} of the rate: the optimizer makes of it what it can"
        return supports(medium, what, step_over_rate.name)
    what = f"an element moves by {moved:.2g} of the rate only: something else holds it back"
    return contradicts(strong, what, step_over_rate.name)


def _by_curves(
    rate: Series | None, train: Series | None, val: Series | None, smallest: float, medium: float
) -> Iterator[Evidence]:
    """Judge by the rate and the losses alone, where nothing of the weights was recorded."""
    _, values = known_rate(rate)
    stands = loss_plateau(train, val)
    if stands is not None and stands.kind != "flat":
        yield contradicts(2 * medium, "the loss falls as fast as it should at first: the rate is not too low", "LOSS003")
    if never_falls_below_start(train, val) is None:
        return
    if values.size and 0 < values.max() < smallest:
        yield supports(medium, f"the rate never exceeds {values.max():.2g}", learning_rate.name)
    falls = np.diff(val.finite_points()[1]) if val is not None else np.empty(0)
    if len(falls) >= 5 and (falls < 0).mean() >= 0.9:
        yield supports(
            medium,
            f"the held-out loss falls at {(falls < 0).sum()} of {len(falls)} evaluations, by {-falls.sum():.2g} in all: "
            "it goes the right way, too slowly",
            val_loss.name,
        )
    elif len(falls) >= 5 and not falls.any():
        yield contradicts(2 * medium, "the held-out loss does not change at all: no rate is so low", val_loss.name)
