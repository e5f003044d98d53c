"""Probabilities are given to a loss that expects logits."""

import math
from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.shared.loss_curves import loss_plateau
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence, Finding
from ckaudit.metrics.gradients import grad_global_norm
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.metrics.loss_function import MISFITS, loss_input_misfit
from ckaudit.rules.attention.uniform_heads import uniform_heads
from ckaudit.rules.evaluation.unsure_though_right import unsure_though_right
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.loss.loss_inputs_wrong import loss_inputs_wrong
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.loss.overfitting import overfitting
from ckaudit.rules.loss.train_val_inverted import train_val_inverted
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.run.medians import median
from ckaudit.run.series import Series
from ckaudit.run.tensors import loss_vocabulary


@cause(
    prior=-1.0,
    good_checkpoint="none",
    explains=[loss_inputs_wrong, loss_not_falling, unsure_though_right],
    follows=[
        barely_moving,
        dead_parameter,
        overfitting,
        train_val_inverted,
        uniform_heads,
        update_out_of_band,
        vanishing_gradient,
    ],
    wants=[train_loss_raw, val_loss, grad_global_norm, FACTS, loss_input_misfit],
    knob="Give the loss logits: take the softmax out of the model's head, or use the loss that takes log-probabilities.",
    inspect="What the head returns (rows that sum to one are no logits), and what the loss function expects.",
    runbook="Nothing here is worth keeping. On one batch compare the loss with a cross entropy computed by hand from the logits.",
)
def softmax_applied_twice(
    findings: Findings,
    train: Series | None,
    val: Series | None,
    norm: Series | None,
    facts: Manifest | None,
    misfit: Series | None,
    *,
    small: float = 10.0,
    learnt: float = 0.05,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """Probabilities are given to a loss that expects logits: softmax is taken twice.

    With V tokens, a second softmax bounds the loss and weakens the gradient:

    - The loss is never below log(V - 1 + e) - 1: even a sure and right answer comes out as 1 against V - 1 zeros.
    - The gradient norm begins about V times smaller than usual, below `small` / V. The gradients of models at their start are of
      the order of one.
    - The loss must have fallen by `learnt` nats. Otherwise nothing is learnt at all, which is another illness.
    - Whatever V is, the loss falls by less than one nat, and a held-out loss that is computed in another way takes another
      course.
    - Where the loss function was seen, there is nothing to guess.
    - Log odds are on the common scale (`causes/cause.py`).
    """
    given = None if misfit is None else misfit.only(lambda label: label == MISFITS[0])
    if given is not None and given.finite.any():
        share, wrong = median(given.values[given.finite]), findings.first(loss_inputs_wrong)
        if wrong is None:
            yield contradicts(2 * decisive, f"{share:.0%} of what the loss function is given are probabilities", given.name)
        else:
            yield supports(decisive, f"{share:.0%} of the rows that the loss function is given sum to one", wrong)
        return
    if (unsure := findings.first(unsure_though_right)) and unsure.value is not None:
        yield from _rests_at_floor(unsure, strong, medium)
        return
    vocabulary = loss_vocabulary(facts)
    if vocabulary is None or vocabulary < 2 or train is None or not train.finite.any():
        yield from _without_vocabulary(train, val, norm, decisive, strong, medium)
        return
    guess, floor = math.log(vocabulary), _floor(vocabulary)
    lowest, level = float(train.values[train.finite].min()), median(train.values[train.finite][-20:])
    if lowest < floor:
        yield contradicts(
            decisive, f"the loss falls to {lowest:.3g}; with a second softmax it stays above {floor:.3g}", train.name
        )
        return
    if guess - learnt > level:
        yield supports(
            strong, f"the loss falls and rests at {level:.3g}, above the {floor:.3g} that a second softmax leaves", train.name
        )
    yield from _first_gradient(norm, vocabulary, small, decisive, strong)
    if val is not None and val.finite.any():
        yield from _held_out_differs(val, floor, guess + 1, medium)


def _floor(classes: int) -> float:
    """Return what a second softmax leaves of the cross entropy of an answer that is right and sure, in nats."""
    return math.log(classes - 1 + math.e) - 1


def _first_gradient(norm: Series | None, vocabulary: int, small: float, decisive: float, strong: float) -> Iterator[Evidence]:
    """Judge by the first gradients, which a second softmax divides by the number of tokens."""
    if norm is None or not norm.finite.any():
        return
    start = median(norm.values[norm.finite][:10])
    if start < small / vocabulary:
        yield supports(
            strong,
            f"the gradient norm begins at {start:.2g}, where 1 is usual: a second softmax divides by some {vocabulary}",
            norm.name,
        )
    else:
        yield contradicts(decisive, f"the gradient norm begins at {start:.2g}, as it should", norm.name)


def _rests_at_floor(
    unsure: Finding, strong: float, medium: float, *, near: float = 0.02, max_classes: int = 12
) -> Iterator[Evidence]:
    """Judge a classifier that is right by the loss at which it rests: with few classes, a second softmax leaves a known one."""
    level = float(unsure.value or 0.0)
    classes = int(math.exp(level + 1) - math.e + 1)
    yield supports(strong, unsure.message, unsure)
    if classes < 2 or classes > max_classes:
        return
    floor = _floor(classes)
    if level - floor < near * level:
        yield supports(medium, f"a second softmax leaves {floor:.4g} of {classes} classes", unsure)
    else:
        yield contradicts(medium, f"it rests above the {floor:.4g} that a second softmax leaves of {classes} classes", unsure)


def _held_out_differs(val: Series, low: float, high: float, weight: float) -> Iterator[Evidence]:
    """Yield support where the held-out loss leaves the range that a second softmax allows: it is computed in another way."""
    values = val.values[val.finite]
    if values.min() < low or values.max() > high:
        yield supports(
            weight,
            f"the held-out loss goes from {values[0]:.3g} to {values[-1]:.3g}: it is not the loss that is trained",
            val.name,
        )


def _without_vocabulary(
    train: Series | None,
    val: Series | None,
    norm: Series | None,
    decisive: float,
    strong: float,
    medium: float,
    *,
    weak_gradient: float = 0.1,
) -> Iterator[Evidence]:
    """Judge by the curves alone, where the vocabulary is not known."""
    stands = loss_plateau(train, val)
    if train is None or val is None or stands is None or stands.kind != "apart":
        yield contradicts(strong, "the training loss is not held up while the held-out loss moves", train_loss_raw.name)
        return
    losses = train.values[train.finite]
    fall = stands.limit - float(losses.min())
    if fall >= 1:
        yield contradicts(decisive, f"the loss falls by {fall:.2g} nats; a second softmax leaves it less than one", train.name)
        return
    yield supports(
        strong,
        f"the loss falls by {fall:.2g} nats and no more: a second softmax leaves it less than one, of any number of tokens",
        train.name,
    )
    yield from _held_out_differs(val, float(losses.min()), stands.limit + 1, medium)
    if norm is not None and norm.finite.any() and (start := median(norm.values[norm.finite][:10])) < weak_gradient:
        yield supports(medium, f"the gradient norm begins at {start:.2g}, where 1 is usual", norm.name)
