"""The optimizer does not fit the learning rate and model."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, first_and_others, places_of, supports
from ckaudit.causes.shared.loss_curves import loss_plateau, never_falls_below_start
from ckaudit.causes.shared.update_size import gain_of_gradient, gradient_percentile_ratio
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.gradients import gradient_norm
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.metrics.optimizer import clip_coefficient, learning_rate
from ckaudit.metrics.weights import update_norm
from ckaudit.metrics.words import optimizer_adapts
from ckaudit.rules.attention.uniform_heads import uniform_heads
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.layer_not_contributing import layer_not_contributing
from ckaudit.rules.updates.learning_rate_jump import learning_rate_jump
from ckaudit.rules.updates.learning_rate_zero import learning_rate_zero
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.run.medians import median
from ckaudit.run.run_facts import is_adaptive, is_plain_descent
from ckaudit.run.series import Series

EXPLAINS = (update_out_of_band, barely_moving, loss_not_falling, uniform_heads)


@cause(
    prior=-1.5,
    good_checkpoint="none",
    explains=EXPLAINS,
    follows=[layer_not_contributing],
    wants=[update_norm, gradient_norm, learning_rate, clip_coefficient, optimizer_adapts, train_loss_raw, val_loss, FACTS],
    knob="Use Adam or AdamW for this model, or give SGD a rate of its own, a hundred times Adam's, and a longer warm-up.",
    inspect="Updates over weights, tensor by tensor: under plain descent they are as far apart as the gradients.",
    runbook="Nothing to save: restart with the other optimizer and compare the first hundred steps on the same batches.",
)
def optimizer_unsuited(
    findings: Findings,
    update: Series | None,
    gradient: Series | None,
    rate: Series | None,
    clip: Series | None,
    adapts: Series | None,
    train: Series | None,
    val: Series | None,
    facts: Manifest | None,
    *,
    alike: float = 10.0,
    apart: float = 30.0,
    low: float = 3e-3,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """The optimizer does not fit the learning rate and model, as plain SGD with the rate of Adam.

    Whether one rate can suit all tensors depends on how far their gradients are apart:

    - Updates follow the gradient alone where their ratio to rate times gradient differs by less than `alike` between tensors (the
      10th and the 90th percentile).
    - One rate cannot suit all tensors where, besides, gradients differ by more than `apart`. It suits all where those of matrices
      differ by no more.
    - Rates below `low` are Adam's; SGD's are 0.01 and more in most recipes.
    - A rate of zero moves nothing under any optimizer.
    - Log odds are first guesses.
    """
    if adapts is not None and is_adaptive(adapts):
        yield contradicts(3 * strong, "the optimizer divides each gradient by its own size", adapts.name)
        return
    zero = findings.first(learning_rate_zero)
    if zero and not findings.before(zero.first_step or 0).of(*EXPLAINS):
        yield contradicts(3 * strong, f"no optimizer moves a weight then: {zero.message}", zero)
    onset = findings.first(*EXPLAINS)
    if onset is not None and (jump := findings.before((onset.first_step or 0) + 1).first(learning_rate_jump)):
        yield contradicts(2 * strong, f"it came with another rate under the same optimizer: {jump.message}", jump)
    if missing := _without_gradient(findings, gradient):
        yield contradicts(
            2 * strong, f"no gradient is made for {first_and_others(missing)}, and no optimizer helps", gradient_norm.name
        )
    is_plain = is_plain_descent(adapts)
    if is_plain:
        yield from _of_plain_descent(gradient, facts, apart, strong)
    if (gains_and_gradients := gain_of_gradient(update, gradient, rate, clip)) is not None:
        gains, gradients = (np.percentile(values, [10, 90]) for values in gains_and_gradients)
        spread, width = gains[1] / gains[0], gradients[1] / gradients[0]
        if spread < alike and width > apart:
            yield supports(
                strong,
                f"updates are {gains[0]:.2g} to {gains[1]:.2g} times rate and gradient in nearly all tensors, and "
                f"gradients are {width:.0f} times as large in some as in others",
                update_norm.name,
            )
        elif spread > apart and not is_plain:  # of plain descent, decay and rounding make it differ
            yield contradicts(
                strong, f"updates do not go by the gradient: their ratio differs {spread:.0f}-fold", update_norm.name
            )
    if update is None and (level := _standing(train, val)) is not None:
        yield contradicts(strong, f"the loss does not fall slowly, it stands, at {level:.4g}", "LOSS003")
    if rate is not None and rate.finite.any() and (peak := float(rate.values[rate.finite].max())) < low:
        yield supports(medium, f"the rate of {peak:.2g} is one for Adam", rate.name)
    elif rate is not None and rate.finite.any():
        yield contradicts(strong, f"the rate of {peak:.2g} is one for plain descent", rate.name)
    if clip is not None and clip.finite.any() and (left := median(clip.values[clip.finite])) < 0.1:
        yield contradicts(strong, f"clipping leaves {left:.2g} of the gradient", clip.name)


def _of_plain_descent(gradient: Series | None, facts: Manifest | None, apart: float, weight: float) -> Iterator[Evidence]:
    """Judge by an optimizer that is known to be plain descent, and by how far the gradients of matrices are apart."""
    yield supports(weight, "the optimizer is plain descent, which goes by the gradient as it is", optimizer_adapts.name)
    width = gradient_percentile_ratio(gradient, facts)
    if width is not None and width <= apart:
        what = f"gradients are {width:.2g} times as large in some matrices as in others: one rate suits them all"
        yield contradicts(weight, what, gradient_norm.name)


def _standing(train: Series | None, val: Series | None) -> float | None:
    """Return the level of a loss that stands still or never falls below its start; None for any other."""
    stands = loss_plateau(train, val)
    return stands.level if stands is not None else never_falls_below_start(train, val)


def _without_gradient(findings: Findings, gradient: Series | None) -> set[str]:
    """Return the tensors that stand still and have no gradient, where gradients are recorded."""
    still = places_of(findings.of(barely_moving))
    return {place for place in still if place not in gradient.places} if gradient is not None else set()
