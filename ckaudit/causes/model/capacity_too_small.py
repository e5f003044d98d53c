"""The model is too small for its data."""

import math
from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.shared.loss_curves import best_explained_share, loss_plateau, never_falls_below_start
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence, Finding
from ckaudit.metrics.loss import train_loss_raw, train_val_gap, val_loss
from ckaudit.metrics.loss_function import LEARNT_SHARE, MAX_UNEXPLAINED, explained_share
from ckaudit.metrics.weights import update_to_weight_global
from ckaudit.rules.activations.dead_units import dead_units
from ckaudit.rules.attention.uniform_heads import uniform_heads
from ckaudit.rules.data.target_misalignment import target_misalignment
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.loss.loss_rises import loss_rises
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.loss.posterior_collapse import posterior_collapse
from ckaudit.rules.precision.skipped_updates import skipped_updates
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.frozen_parameter import frozen_parameter
from ckaudit.rules.updates.learning_rate_zero import learning_rate_zero
from ckaudit.rules.updates.schedule_off_plan import schedule_off_plan
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.weights.weights_alike import weights_alike
from ckaudit.rules.weights.weights_shrink import weights_shrink
from ckaudit.run.series import Series
from ckaudit.run.tensors import loss_vocabulary, table_of

OBSTACLES_TO_LEARNING = (
    barely_moving,
    dead_parameter,
    dead_units,
    frozen_parameter,
    learning_rate_zero,
    posterior_collapse,
    schedule_off_plan,
    skipped_updates,
    target_misalignment,
    vanishing_gradient,
    weights_alike,
    weights_shrink,
)
"""Illnesses that keep a model of any size, on any data, from learning."""
DISPLACES_WEIGHTS = (exploding_gradient, loss_rises, loss_spike)
"""Illnesses that move the weights away from where learning had brought them, if they come before the loss stands still."""


@cause(
    prior=-1.0,
    good_checkpoint="none",
    explains=[loss_not_falling, uniform_heads],
    follows=[update_out_of_band],
    wants=[train_val_gap, val_loss, update_to_weight_global, train_loss_raw, explained_share, FACTS],
    knob="Make the model wider, then deeper; two sizes on the same data show what size buys.",
    inspect="Training and held-out loss on one axis: a model that is too small has them alike, and both rest high.",
    runbook="Nothing to save: train a model of twice the width for as many steps, and compare the loss at each step.",
)
def capacity_too_small(
    findings: Findings,
    gap: Series | None,
    val: Series | None,
    update: Series | None,
    train: Series | None,
    explained: Series | None,
    facts: Manifest | None,
    *,
    alike: float = 0.02,
    room: float = 2.0,
    usual: float = 3e-3,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """The model is too small to learn what the data holds.

    The model learns as it should, nothing else is ill, and it has too little room:

    - Its updates reach `usual` of the weights (about 1e-3 is what recipes aim at).
    - It learns nothing by heart: training and held-out loss are within `alike` of each other.
    - To tell all tokens apart by signs takes as many channels as a token has bits, the base-2 log of the vocabulary. With fewer
      than `room` times as many channels, hardly any are left for the context.
    - A small model comes below its first loss too, if by little, and saves some of what a constant guess costs.
    - Log odds are first guesses, to be fitted on runs of known truth.
    """
    if ill := obstacle_to_learning(findings):
        yield contradicts(strong, f"something keeps it from learning: {ill.message}", ill)
    yield from _by_explained_share(explained, strong)
    if (stands := loss_plateau(train, val)) is not None:
        yield contradicts(
            strong, "the loss does not come down slowly, it stands: a small model learns less, and goes on learning", "LOSS003"
        )
        if stands.kind in ("flat", "lost"):
            yield contradicts(strong, "even the smallest model learns how often each token occurs", "LOSS003")
    elif (level := never_falls_below_start(train, val)) is not None:
        yield contradicts(
            2 * strong,
            f"the loss never came below the {level:.4g} that it began with: a small model learns less, not nothing",
            "LOSS003",
        )
    width, vocabulary = table_of(facts).width(), loss_vocabulary(facts)
    if width is not None and vocabulary is not None and vocabulary > 1:
        bits = math.log2(vocabulary)
        if width < room * bits:
            yield supports(
                strong, f"{width} channels are to tell {vocabulary} tokens apart, which takes {bits:.1f} bits", "run.json"
            )
        elif width > 4 * bits:
            yield contradicts(strong, f"{width} channels are many for a vocabulary of {vocabulary}", "run.json")
    if update is not None and update.finite.any():
        yield _by_updates(update, usual, strong, medium / 2)
    if gap is not None and val is not None and (apart := gap.late_median()) is not None and (level := val.late_median()):
        if abs(apart) < alike * level:
            yield supports(medium, f"training and held-out loss are alike, {level:.3g}: nothing is learnt by heart", gap.name)
        elif apart > 0:
            yield contradicts(
                strong, f"the training loss lies {apart:.2g} below the held-out one: there is room to memorise", gap.name
            )


def obstacle_to_learning(findings: Findings) -> Finding | None:
    """Return an illness that keeps any model from learning, or threw the weights before the loss stood still, or the loss up."""
    stands, climbs = findings.first(loss_not_falling), findings.first(loss_rises)
    before = findings.before(stands.first_step or 0) if stands is not None else Findings(())
    thrown_up = climbs if climbs is not None and climbs.severity == "sev1" else None
    return findings.first(*OBSTACLES_TO_LEARNING) or before.first(*DISPLACES_WEIGHTS) or thrown_up


def _by_explained_share(explained: Series | None, strong: float) -> Iterator[Evidence]:
    """Judge by the share of a constant guess's loss that the model saves: at its best, and in the second half."""
    saved = explained.late_median() if explained is not None else None
    if once := best_explained_share(explained):
        yield contradicts(strong, f"it has explained {once:.0%} of the targets, and has unlearnt that", explained_share.name)
    elif saved is not None and saved < -LEARNT_SHARE:
        what = f"it costs {1 - saved:.3g} times as much as a constant guess, which the smallest model can make"
        yield contradicts(2 * strong, what, explained_share.name)
    elif saved is not None and saved < MAX_UNEXPLAINED:
        yield contradicts(
            strong, "it saves nothing of what a constant guess costs: a small one saves little", explained_share.name
        )


def _by_updates(update: Series, usual: float, strong: float, weak: float) -> Evidence:
    """Judge by the largest update over the weights: a model that is hardly trained cannot show that it is too small."""
    largest = float(update.values[update.finite].max())
    if largest >= usual:
        return supports(weak, f"updates reach an ordinary {largest:.2g} of the weights", update.name)
    what = f"updates never reach more than {largest:.2g} of the weights: it is not being trained"
    return contradicts(strong, what, update.name)
