"""Targets do not belong to the inputs beside them."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.model.capacity_too_small import obstacle_to_learning
from ckaudit.causes.shared.loss_curves import best_explained_share, loss_plateau
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.data import target_shift_match
from ckaudit.metrics.loss import train_loss_raw, train_val_gap, val_loss
from ckaudit.metrics.loss_function import LEARNT_SHARE, explained_share, never_beats_guess
from ckaudit.metrics.movement import NEGLIGIBLE_DISTANCE, median_distance_moved
from ckaudit.metrics.weights import relative_movement
from ckaudit.rules.attention.uniform_heads import uniform_heads
from ckaudit.rules.data.target_equals_input import target_equals_input
from ckaudit.rules.data.target_misalignment import target_misalignment
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.dominant_tensor import dominant_tensor
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.loss.overfitting import overfitting
from ckaudit.rules.loss.train_val_inverted import train_val_inverted
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.run.medians import median
from ckaudit.run.series import Series


@cause(
    prior=-1.5,
    explains=[target_misalignment, loss_not_falling, overfitting],
    follows=[dead_parameter, dominant_tensor, train_val_inverted, uniform_heads, update_out_of_band, vanishing_gradient],
    wants=[target_shift_match, train_loss_raw, val_loss, train_val_gap, explained_share, relative_movement],
    knob="Make inputs and targets from one array, shifted by one exactly once, after shuffling, cropping and packing.",
    inspect="Where inputs and targets part in the loader: offsets, a second shift inside the model, a shuffle of one of the two.",
    runbook="Stop. Decode one row of inputs and of targets side by side; keep that batch as a test of the loader.",
)
def targets_misaligned(
    findings: Findings,
    match: Series | None,
    train: Series | None,
    val: Series | None,
    gap: Series | None,
    explained: Series | None,
    moved: Series | None,
    *,
    chance: float = 0.2,
    max_chance_match: float = 0.5,
    alike: float = 0.02,
    decisive: float = 5.0,
    strong: float = 3.0,
    medium: float = 2.0,
) -> Iterator[Evidence]:
    """Targets do not belong to the inputs beside them: they are shifted twice, or shuffled.

    Targets that were compared with their inputs tell most. Without them the loss of a constant guess tells, and without that the
    curves:

    - Two unrelated tokens of a text are equal with the probability that its commonest tokens have, at most `chance`. Tokens two
      places apart are equal a little more often.
    - Where more than `max_chance_match` of the targets are right since the finding began, only some are wrong: that is noise and
      no shift.
    - Where targets were not compared, a model that never saved anything of what a constant guess costs has found nothing in its
      inputs that belongs to them, unless its weights hardly moved.
    - That says little: a model saves nothing either where it is hindered by dropout, by gradients that vanish through time, or by
      statistics of batches of two rows.
    - A held-out loss that never comes below that guess is a sign too, where the training loss saves a tenth of it at most: that
      is memory, and little. It says more where the training loss rested at the guess for a quarter of its checkpoints: there was
      nothing to learn before rows were known by heart.
    - A training loss that saves more, with such a held-out loss, has learnt too few rows by heart, whatever belongs to them.
    - Where no guess was recorded either, the loss falls until the model knows how often each target occurs, and stands still from
      there. Where the held-out loss is the same, within `alike`, nothing more can be learnt from the inputs.
    - Log odds are on the common scale (`causes/cause.py`).
    """
    first = findings.first(target_misalignment)
    if first is None:
        is_memory = _is_memory(train, val, explained)
        if not is_memory and findings.first(loss_not_falling) is None:
            yield contradicts(2 * decisive, "the loss falls: something is learnt from the inputs", train_loss_raw.name)
        elif explained is not None and explained.finite.any() and (match is None or not match.finite.any()):
            yield from _by_guess(findings, explained, moved, decisive, strong, medium, is_memory=is_memory)
        else:
            yield from _by_curves(findings, match, train, val, gap, alike, decisive, medium)
        return
    if same := findings.first(target_equals_input):
        yield contradicts(decisive, "the targets are the inputs themselves", same)
        return
    if match is None:
        return
    level = median(match.values[(match.steps >= (first.first_step or 0))[:, None] & match.finite])
    if level < chance:
        yield supports(decisive, f"{level:.0%} of the targets follow their input, as many as of unrelated tokens", first)
    elif level <= max_chance_match:
        yield supports(
            strong, f"{level:.0%} of the targets follow their input, as where they are other tokens of its text", first
        )
    elif level > max_chance_match:
        yield contradicts(strong, f"{level:.0%} of the targets are right: some are wrong, none is out of place", first)


def _is_memory(train: Series | None, val: Series | None, explained: Series | None) -> bool:
    """Tell whether the training loss comes below the loss of a constant guess, and the held-out loss never does."""
    if train is None or val is None or explained is None:
        return False
    return never_beats_guess(train, val.finite_points()[1], explained)


def _by_guess(
    findings: Findings,
    explained: Series,
    moved: Series | None,
    decisive: float,
    strong: float,
    medium: float,
    *,
    is_memory: bool,
    max_explained_share: float = 0.02,
    max_memory_share: float = 0.1,
    min_rest: float = 0.25,
) -> Iterator[Evidence]:
    """Judge by how much of a constant guess's loss the model saves: in the second half, and at its best.

    The saving is memory where no held-out loss comes below such a guess.
    """
    late = explained.late_median() or 0.0
    if ill := obstacle_to_learning(findings):
        yield contradicts(decisive, f"something else keeps it from learning: {ill.message}", ill)
    if (way := median_distance_moved(moved)) is not None and way < NEGLIGIBLE_DISTANCE:
        what = f"the weights came {way:.2g} of their size: whatever the targets, nothing could be learnt of them"
        yield contradicts(decisive, what, relative_movement.name)
    if is_memory and late > max_explained_share:
        what = f"no held-out loss comes below what a constant guess costs: what training saves of it, {late:.0%}, is memory"
        if late <= max_memory_share:
            values = explained.values[explained.finite]
            rested = float((np.abs(values) <= max_explained_share).mean()) >= min_rest
            yield supports(strong if rested else medium / 2, what, explained.name)
        else:
            yield contradicts(medium, f"{what}, as of too few rows", explained.name)
    elif once := best_explained_share(explained):
        yield contradicts(decisive, f"the inputs have explained {once:.0%} of the targets: they belong together", explained.name)
    elif late < -LEARNT_SHARE:
        what = (
            f"the loss is {1 - late:.3g} times what a constant guess costs; targets that are out of place cost no more than one"
        )
        yield contradicts(decisive, what, explained.name)
    elif late <= max_explained_share:
        what = "the model saves nothing of what a constant guess costs: its inputs tell nothing of its targets"
        yield supports(medium / 2, what, explained.name)  # much else can keep a model from learning that no check sees
    else:
        yield contradicts(decisive, f"the inputs explain {late:.0%} of the targets", explained.name)


def _by_curves(
    findings: Findings,
    match: Series | None,
    train: Series | None,
    val: Series | None,
    gap: Series | None,
    alike: float,
    decisive: float,
    medium: float,
) -> Iterator[Evidence]:
    """Judge a run in which no target was seen to be wrong; by the curves alone where no target was compared."""
    stands = loss_plateau(train, val)
    if ill := obstacle_to_learning(findings):
        yield contradicts(decisive, f"something else keeps it from learning: {ill.message}", ill)
    if match is not None and match.finite.any():
        yield contradicts(decisive, "the targets are their inputs shifted by one", match.name)
    elif stands is None or stands.kind != "rests":
        yield contradicts(decisive, "the loss does not stop at once: something is learnt from the inputs", train_loss_raw.name)
    elif gap is not None and (apart := gap.late_median()) is not None and abs(apart) < alike * stands.level:
        yield supports(
            medium,
            f"the loss falls to {stands.level:.4g} and stands still, on held-out data too: nothing more can be "
            "learnt from these inputs",
            train_loss_raw.name,
        )
    else:
        yield contradicts(medium, "the held-out loss is another: something is learnt", train_loss_raw.name)
