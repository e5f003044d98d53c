"""A trainable tensor was never given to the optimizer, or its updates are lost."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, first_and_others, places_of, supports
from ckaudit.causes.shared.gradients import loss_is_calm, norm_trend
from ckaudit.contract.schema.report import Evidence, Finding
from ckaudit.metrics.gradients import grad_global_norm, gradient_norm
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.movement import NEGLIGIBLE_DISTANCE, median_distance_moved
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.progress import steps_seen
from ckaudit.metrics.weights import relative_movement, update_norm, weight_statistics_change
from ckaudit.metrics.words import tensors_without_optimizer
from ckaudit.rules.attention.uniform_heads import uniform_heads
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.frequent_clipping import frequent_clipping
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.precision.skipped_updates import skipped_updates
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.layer_not_contributing import layer_not_contributing
from ckaudit.rules.updates.missing_in_optimizer import missing_in_optimizer
from ckaudit.run.series import Series


@cause(
    prior=-1.0,
    explains=[missing_in_optimizer, barely_moving, exploding_gradient],
    follows=[frequent_clipping, layer_not_contributing, loss_not_falling, uniform_heads],
    wants=[
        gradient_norm,
        update_norm,
        weight_statistics_change,
        steps_seen,
        tensors_without_optimizer,
        grad_global_norm,
        learning_rate,
        train_loss_raw,
        relative_movement,
    ],
    knob="Build the optimizer from model.parameters() after all wrapping and casting; see that its step is called.",
    inspect="Parameter groups of the optimizer against the model's trainable tensors.",
    runbook="Save the configuration; compare the tensors in the optimizer with the model's before the first step.",
)
def not_in_optimizer(
    findings: Findings,
    norm: Series | None,
    moved: Series | None,
    shown: Series | None,
    count: Series | None,
    missing: Series | None,
    whole: Series | None,
    rate: Series | None,
    loss: Series | None,
    come: Series | None,
    *,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """A tensor gets a gradient and no update: the optimizer does not hold it, or holds a copy of it.

    A tensor that is in no parameter group is decisive. Otherwise:

    - A tensor that moved before was in the optimizer then.
    - A loop that clears and updates through the optimizer leaves the gradients of all other tensors to add up. Where tensors were
      not recorded, the gradient norm shows this sum, if the loss takes no notice.
    - Where no rate is recorded and the other tensors come less than a hundredth of their size, none moves as it should.
    - Log odds are on the common scale (`causes/cause.py`).
    """
    listed = findings.first(missing_in_optimizer)
    if listed is not None:
        yield supports(decisive, listed.message, listed)
    elif missing is not None and not (missing.values[missing.finite] > 0).any():
        yield contradicts(strong + medium, "the groups of the optimizer hold every trainable tensor", missing.name)
    fed_places = norm.labels if norm is not None else ()
    frozen = [
        finding
        for finding in findings.of(barely_moving)
        if finding.severity == "sev1" or (finding.value == 0 and norm is not None and _is_fed(finding, norm))
    ]
    if not frozen and moved is None and not fed_places:
        yield from _by_the_norm(findings, whole, loss, strong)
        return
    if not frozen:
        yield contradicts(strong, "no tensor with a gradient stands quite still", "MOVE001")
        return
    if rate is None:
        yield contradicts(medium, "no learning rate is recorded, and a rate of zero would look the same", frozen[0])
        if (way := median_distance_moved(come)) is not None and way < NEGLIGIBLE_DISTANCE:
            what = f"the others have come {way:.2g} of their size in all: they hardly move either"
            yield contradicts(strong, what, relative_movement.name)
    places, dead = places_of(frozen), places_of(findings.of(dead_parameter))
    fed = (places - dead) & {*fed_places}
    if fed:
        yield supports(strong, f"{first_and_others(fed)}: a gradient, and never an update", frozen[0])
    if count is None and len(fed_places) > 1 and len(fed) >= 0.9 * len(fed_places):
        yield contradicts(strong, "every tensor stands still, and no optimizer leaves out all of them", frozen[0])
    if places & dead:
        yield contradicts(strong, f"{min(places & dead)} gets no gradient either", "GRAD003")
    if (change := moved if moved is not None else shown) is not None:
        yield from _before(frozen[0], change, strong, 0.0 if moved is None else medium)
    if skipped := findings.first(skipped_updates):
        yield contradicts(decisive, f"no tensor is updated then: {skipped.message}", skipped)
    elif count is not None and moved is not None and len(places_of(frozen)) == len(moved.labels):
        yield supports(medium, "updates are counted and nothing moves: the optimizer moves other tensors, or copies", count.name)


def _is_fed(finding: Finding, norm: Series) -> bool:
    """Tell whether a tensor has a gradient where it begins to stand still; without a checkpoint there, whether it has any."""
    rows = norm.steps == finding.first_step
    if finding.where not in norm.places or not rows.any():
        return finding.where in norm.places
    column = norm.places[finding.where]
    return bool((norm.recorded[rows, column] & (norm.values[rows, column] != 0)).any())


def _by_the_norm(findings: Findings, whole: Series | None, loss: Series | None, strong: float) -> Iterator[Evidence]:
    """Judge by the gradient norm whether gradients add up that no update uses."""
    course = norm_trend(whole)
    if whole is None or course is None or not course.adds_up() or not loss_is_calm(findings, loss):
        return
    adds_up = f"the gradient norm rises from {course.start:.2g} to {course.peak:.2g} step by step: something never clears it"
    yield supports(strong, adds_up, whole.name)
    yield supports(strong, "the loss takes no notice of it: no update goes by those gradients", whole.name)


def _before(frozen: Finding, moved: Series, strong: float, medium: float) -> Iterator[Evidence]:
    """Judge whether the first tensor that stands still moved before; what checkpoints show of weights counts only if it did."""
    if frozen.where not in moved.places or frozen.first_step is None:
        return
    past = moved.values[moved.steps < frozen.first_step, moved.places[frozen.where]]
    if np.any(np.nan_to_num(past) > 0):
        yield contradicts(strong, f"{frozen.where} was updated before step {frozen.first_step}", frozen)
    elif medium:
        yield supports(medium, f"{frozen.where} has not moved since the first checkpoint", frozen)
