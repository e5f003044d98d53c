"""The model has more capacity than the data has content."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Advice, Findings, cause, contradicts, supports
from ckaudit.causes.shared.batches import has_no_token_shift, token_shift
from ckaudit.causes.shared.loss_curves import (
    diverging_slices,
    has_finite_loss_before,
    loss_jump,
    lost_batch_noise,
    mirrored_held_out_loss,
)
from ckaudit.contract.schema.report import Evidence, Finding
from ckaudit.metrics.data import token_kl_drift
from ckaudit.metrics.loss import slice_val_loss, train_loss_raw, val_loss
from ckaudit.rules.attention.entropy_collapse import entropy_collapse
from ckaudit.rules.attention.logit_growth import logit_growth
from ckaudit.rules.attention.mask_leak import mask_leak
from ckaudit.rules.data.input_drift import input_drift
from ckaudit.rules.data.input_scale_off import input_scale_off
from ckaudit.rules.data.repeated_batch import repeated_batch
from ckaudit.rules.data.repeated_documents import repeated_documents
from ckaudit.rules.data.source_drift import source_drift
from ckaudit.rules.data.target_equals_input import target_equals_input
from ckaudit.rules.data.target_misalignment import target_misalignment
from ckaudit.rules.data.token_drift import token_drift
from ckaudit.rules.evaluation.evaluation_artifact_changed import evaluation_artifact_changed
from ckaudit.rules.evaluation.memorization_rising import memorization_rising
from ckaudit.rules.evaluation.slice_regression import slice_regression
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.frequent_clipping import frequent_clipping
from ckaudit.rules.loss.initial_loss_off import initial_loss_off
from ckaudit.rules.loss.loss_below_floor import loss_below_floor
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.loss.overfitting import overfitting
from ckaudit.rules.precision.impossible_value import impossible_value
from ckaudit.run.medians import median
from ckaudit.run.series import Series

OTHER_EXPLANATIONS = (
    repeated_batch,
    token_drift,
    source_drift,
    target_misalignment,
    target_equals_input,
    evaluation_artifact_changed,
    input_drift,
    input_scale_off,
    initial_loss_off,
    impossible_value,
    mask_leak,
)
"""Illnesses that drive the training and the held-out loss apart for another reason."""

OFF_FROM_THE_START, HARDLY_LEARNT = 1.25, 0.8
"""A first held-out loss of over so many times an untrained model's, while over such a share of the training loss is left, is not
memory."""


@cause(
    prior=-1.0,
    explains=[overfitting, slice_regression],
    follows=[entropy_collapse, exploding_gradient, frequent_clipping, logit_growth, loss_below_floor, memorization_rising],
    wants=[train_loss_raw, val_loss, slice_val_loss, token_kl_drift],
    knob="More or more varied data, or more regularisation; until then stop at the lowest validation loss.",
    inspect="Training and validation loss on one axis, and how often each sample has been seen.",
    runbook="Keep the checkpoint nearest to the lowest validation loss: it is the model to use.",
)
def too_little_data(
    findings: Findings,
    train: Series | None,
    val: Series | None,
    slices: Series | None,
    tokens: Series | None,
    *,
    wide: float = 0.2,
    max_over_start: float = 10.0,
    min_fall: float = 0.05,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence | Advice]:
    """The model memorises: it sees too little data for its capacity and its number of steps.

    What is learnt by heart helps the training loss alone:

    - A slice that gets worse while the whole held-out loss does not is the first sign, where the training loss runs away from the
      whole.
    - Validation is far from training where their gap is more than `wide` of the validation loss.
    - What was learnt by heart has brought the training loss down by at least `min_fall` of its start.
    - A model that is sure of what is wrong pays some ten nats for it, and one that guesses between two answers two thirds of a
      nat. A validation loss of more than `max_over_start` times the first training loss is therefore not memory.
    - Memory costs every slice of the held-out text, and needs no change of tokens, batches, targets or inputs.
    - Memory makes the training loss fall below that of a model that knows no order.
    - Slices whose losses part are a sign of other data, unless the tokens are known to be the same.
    - Log odds are first guesses, to be fitted on runs of known truth.
    """
    first = findings.first(overfitting) or findings.first(slice_regression)
    if first is None or train is None or val is None or first.last_step is None:
        return
    if not train.finite.any() or not val.finite.any():
        return
    yield from _by_gap(first, train, val, wide=wide, decisive=decisive, strong=strong, medium=medium)
    if (twin := mirrored_held_out_loss(train, val)) is not None:
        yield contradicts(2 * decisive, f"validation ends at {twin:.3g}, and the training loss as far below zero", val.name)
    yield from _by_start(train, val, max_over_start, min_fall, decisive)
    yield from _by_course(first, train, val, decisive, strong)
    if other := findings.first(*OTHER_EXPLANATIONS):
        yield contradicts(decisive, f"the two part for another reason: {other.message}", other)
    if (jump := findings.first(loss_spike)) and (both := loss_jump(train, val, jump.first_step or 0)) and both.is_of_both:
        yield contradicts(strong, f"both losses jump at step {both.step}: memory would not make the training loss jump", jump)
    if tokens is None and (alike := lost_batch_noise(train)) is not None:
        yield contradicts(
            medium, f"in the end losses of neighbouring steps differ by {alike:.2%}: every step sees the same samples", train.name
        )
    if stuck := findings.first(loss_not_falling):
        yield contradicts(decisive, f"nothing is learnt by heart: {stuck.message}", stuck)
    if again := findings.first(repeated_documents):
        yield supports(medium, again.message, again)
    same = tokens is not None and has_no_token_shift(tokens)
    if slices is not None and not same and (two := diverging_slices(slices, first.first_step or 0)):
        yield contradicts(
            strong + 1, f"{two[0]} is forgotten while {two[1]} is still learnt: other data, not too little", slices.name
        )
    if tokens is not None and (now := token_shift(tokens)):
        yield contradicts(medium, f"the tokens have changed, by {now[1]:.2g} nats since step {now[2]}", tokens.name)


def _by_course(first: Finding, train: Series, val: Series, decisive: float, strong: float) -> Iterator[Evidence]:
    """Judge by the held-out loss alone: learning by heart makes it turn, little by little."""
    if _never_came_down(train, val):
        what = "the held-out loss never came down: nothing that was learnt holds for it, as where targets belong to other inputs"
        yield contradicts(strong, what, val.name)
    elif first.code == overfitting.code and _falls_to_its_end(val):
        what = "the held-out loss is still falling at its end: what is learnt by heart makes it turn"
        yield contradicts(strong, what, val.name)
    if (doubled := _doubles_at_once(val)) is not None:
        what = f"the held-out loss doubles from one evaluation to the next, at step {doubled}: memory comes little by little"
        yield contradicts(decisive, what, val.name)


def _never_came_down(train: Series, val: Series, *, fell: float = 0.02) -> bool:
    """Tell whether the lowest of several held-out losses is no lower than the first, nor than the first training losses."""
    held_out, losses = val.finite_points()[1], train.finite_points()[1]
    begun = max(median(losses[:3]), float(held_out[0]))
    return len(held_out) > 2 and begun > 0 and float(held_out.min()) > (1 - fell) * begun


def _falls_to_its_end(val: Series) -> bool:
    """Tell whether each third of the held-out losses is lower than the one before, and the last of all the lowest."""
    losses = val.finite_points()[1]
    thirds = [median(part) for part in np.array_split(losses, 3)] if len(losses) >= 6 else []
    return bool(thirds) and thirds[0] > thirds[1] > thirds[2] and losses[-1] == losses.min()


def _doubles_at_once(val: Series, *, min_evals_before: int = 5) -> int | None:
    """Return the step from which a held-out loss stays above twice the one before, which was about its lowest; None: none."""
    steps, losses = val.finite_points()
    before, after = losses[:-1], np.minimum.accumulate(losses[::-1])[::-1][1:]
    is_lowest = (before > 0) & (before < 1.1 * np.minimum.accumulate(losses)[:-1])
    rows = np.flatnonzero(is_lowest & (after > 2 * before))
    late = rows[rows >= min_evals_before]
    return int(steps[late[0] + 1]) if len(late) else None


def _level(train: Series, step: int | None) -> float:
    """Return the training loss up to a step: the median of a twentieth of all points, so that no single batch or jump counts."""
    known = train.values[train.finite[:, 0] & (train.steps <= (step or 0)), 0]
    return median(known[-max(1, train.points // 20) :]) if len(known) else np.nan


def _by_gap(
    first: Finding, train: Series, val: Series, *, wide: float, decisive: float, strong: float, medium: float
) -> Iterator[Evidence | Advice]:
    """Judge by how far the training loss has run away from the held-out one."""
    is_whole = first.code == overfitting.code
    start, end = (_level(train, step) for step in (first.first_step, first.last_step))
    last = float(val.finite_points()[1][-1])
    is_known = has_finite_loss_before(train, (first.last_step or 0) + 1)  # else the training loss is no longer logged
    is_far = is_known and last > 0 and (last - end) / last > wide
    if is_whole:
        best = int(np.nanargmin(np.where(val.finite[:, 0], val.values[:, 0], np.nan)))
        yield Advice(
            f"More or more varied data, or more regularisation; of this run keep step {val.steps[best]}, where validation is "
            f"lowest, at {val.values[best, 0]:.4g}."
        )
    elif not is_far or end >= start:
        yield contradicts(
            decisive, "the training loss does not run away from validation, as it does where data is learnt by heart"
        )
        return
    if end < 0.98 * start:  # noise of the level is below that
        behind = "validation does not" if is_whole else "that of a slice has turned"
        yield supports(strong, f"the training loss goes on falling, from {start:.3g} to {end:.3g}, and {behind}", first)
    elif end > start * 1.05:
        yield contradicts(strong, f"the training loss rises too, from {start:.3g} to {end:.3g}", first)
    if is_far:
        yield supports(medium, f"validation ends at {last:.3g}, training at {end:.3g}", val.name)


def _by_start(train: Series, val: Series, max_over: float, min_fall: float, decisive: float) -> Iterator[Evidence]:
    """Judge against the first training loss, where the log begins with its run and that loss is positive."""
    known = np.flatnonzero(train.finite[:, 0])
    begin, worst = float(train.values[known[0], 0]), float(val.finite_points()[1][1:].max(initial=0.0))
    if begin <= 0 or train.steps[known[0]] > max(1, int(train.steps[known[-1]]) // len(known)):
        return
    if (lowest := float(train.values[known, 0].min())) > (1 - min_fall) * begin:
        yield contradicts(
            decisive, f"nothing is learnt by heart: the training loss begins at {begin:.3g}, lowest {lowest:.3g}", train.name
        )
    first = int(np.flatnonzero(val.finite[:, 0])[0])
    held_out, by_then = float(val.values[first, 0]), _level(train, int(val.steps[first]))
    if held_out > OFF_FROM_THE_START * begin and by_then > HARDLY_LEARNT * begin:
        yield contradicts(
            decisive,
            f"at the first evaluation validation costs {held_out:.3g} and training {by_then:.3g}, an untrained model "
            f"{begin:.3g}: what is held out was never like it",
            val.name,
        )
    if worst > max_over * begin:
        yield contradicts(
            decisive, f"validation costs {worst:.3g}, the untrained model {begin:.3g}: memory is not so far off", val.name
        )
