"""Weight decay pulls the weights down faster than they learn."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.shared.loss_curves import loss_plateau
from ckaudit.causes.shared.rate_course import known_rate
from ckaudit.causes.shared.update_size import weights_replaced
from ckaudit.contract.schema.report import Evidence, Finding
from ckaudit.metrics.gradients import grad_global_norm
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.metrics.movement import decayed_share, decays_nothing
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.reductions import row_medians
from ckaudit.metrics.weights import weight_norm, weight_rms, weight_std
from ckaudit.metrics.words import optimizer_adapts
from ckaudit.rules.activations.activation_drift import activation_drift
from ckaudit.rules.activations.dead_units import dead_units
from ckaudit.rules.attention.uniform_heads import uniform_heads
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.dominant_tensor import dominant_tensor
from ckaudit.rules.gradients.frequent_clipping import frequent_clipping
from ckaudit.rules.gradients.starved_branch import starved_branch
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.gradients.zero_gradients import zero_gradients
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.loss.loss_rises import loss_rises
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.precision.nonfinite_values import nonfinite_values
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.layer_not_contributing import layer_not_contributing
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.updates.updates_held_back import updates_held_back
from ckaudit.rules.weights.decay_outweighs_learning import decay_outweighs_learning
from ckaudit.rules.weights.weights_shrink import weights_shrink
from ckaudit.run.medians import median
from ckaudit.run.robust import begins_with_its_run, typical_move
from ckaudit.run.series import Series, at


@cause(
    prior=-0.5,
    explains=[decay_outweighs_learning, weights_shrink, loss_rises, loss_not_falling, uniform_heads],
    follows=[
        starved_branch,
        dead_parameter,
        dead_units,
        activation_drift,
        vanishing_gradient,
        loss_spike,
        dominant_tensor,
        update_out_of_band,
        zero_gradients,
        layer_not_contributing,
        barely_moving,
        updates_held_back,
    ],
    wants=[
        weight_norm,
        weight_rms,
        learning_rate,
        train_loss_raw,
        val_loss,
        grad_global_norm,
        weight_std,
        optimizer_adapts,
        decayed_share,
    ],
    knob="Set the weight decay to 0.1 or less, and to 0 for norms and biases.",
    inspect="Norms of all tensors over time; the decay of each parameter group, and whether it is multiplied by the rate.",
    runbook="Go back to the last checkpoint at which the norms were whole, and resume from it with the lower decay.",
)
def weight_decay_too_high(
    findings: Findings,
    norm: Series | None,
    rms: Series | None,
    rate: Series | None,
    train: Series | None,
    val: Series | None,
    gradient: Series | None,
    std: Series | None,
    adapts: Series | None,
    decayed: Series | None,
    *,
    usual: float = 1.0,
    calm: float = 0.02,
    strong: float = 2.5,
    medium: float = 1.0,
    weak: float = 0.2,
) -> Iterator[Evidence]:
    """Weight decay pulls the weights down faster than they learn.

    The decay shows in what is recorded of it, in the weights, or in the curves:

    - An optimizer without weight decay rules this cause out.
    - Where the decay is recorded, its part in each update says so, unless the rest of the update was held back before, or the
      rate had replaced the weights.
    - Decoupled decay takes rate times decay off every weight at each step: the steepest fall of the median norm over the rate is
      the decay at work. Recipes give 0 to 0.3; more than `usual` is too much.
    - Where weights were not recorded, the loss climbs back to where it began and rests there, from step to step within `calm` of
      it, with gradients no larger than before.
    - A model whose weights go to zero gives the same answer to every input. The loss of an unstable model does not rest.
    - Other illnesses end there too, so that a curve alone speaks only slightly for this cause.
    - A curve that jumps speaks clearly against this cause: decay works over one by rate times decay steps, and makes no jump.
    - So does a loss that ends above that of an untrained model: an answer that is the same for every input costs no more.
    - Numbers that overflow speak against this cause, for weights that shrink overflow nothing. So does a loss that turns while
      the rate rises, for learning rises with the rate as decay does.
    - Log odds are first guesses.
    """
    if heavy := findings.first(decay_outweighs_learning):
        yield supports(strong, heavy.message, heavy)
        yield from _held_back(findings, heavy, strong)
        yield from weights_replaced(rate, std, adapts, heavy.first_step, strong)
        return
    if decays_nothing(decayed):
        yield contradicts(4 * strong, "the optimizer has no weight decay", decayed_share.name)
        return
    norm = norm if norm is not None else rms
    if norm is None:
        yield from _forgotten(train, val, gradient, calm, strong, weak)
        yield from _not_by_decay(findings, train, val, rate, strong)
        return
    shrink = findings.first(weights_shrink)
    if shrink is None:
        yield contradicts(2 * strong, "the weights do not shrink", weight_norm.name)
        return
    yield supports(strong, f"the weights shrink together: {shrink.message}", shrink)
    yield from _held_back(findings, shrink, strong)
    if (fall := _steepest_fall(norm)) is None:
        return
    step, per_step = fall
    used = None if rate is None else float(np.nan_to_num(at(rate, np.array([step])).values.max()))
    if not used:
        return
    decay = per_step / used
    if decay > usual:
        yield supports(
            medium,
            f"up to step {step} each update takes {per_step:.1%} off the median tensor, as a decay of {decay:.2g} does",
            shrink,
        )
    else:
        yield contradicts(medium, f"they shrink no faster than under a decay of {decay:.2g}", shrink)


def _held_back(findings: Findings, decay: Finding, weight: float) -> Iterator[Evidence]:
    """Judge by whether updates were held back, clipped or without a gradient already when the decay was first seen."""
    if held := findings.before((decay.first_step or 0) + 1).first(updates_held_back, frequent_clipping):
        yield contradicts(weight, f"what is learnt is held back, and decay is much of what is left: {held.message}", held)
    if silent := findings.before(decay.first_step or 0).first(dead_units):
        yield contradicts(
            2 * weight, f"units were silent before, and no gradient holds against a decay: {silent.message}", silent
        )


def _forgotten(
    train: Series | None, val: Series | None, gradient: Series | None, calm: float, strong: float, weak: float
) -> Iterator[Evidence]:
    """Judge by the curves alone."""
    stands = loss_plateau(train, val)
    if train is None or stands is None or stands.kind != "lost":
        yield contradicts(2 * strong, "the loss does not go back to where it began, and no weights were recorded", "LOSS003")
        return
    end = train.values[train.finite][-50:]
    noise = typical_move(end) / abs(stands.level)
    if noise < calm:
        yield supports(
            weak, f"the loss goes back to {stands.level:.4g} and rests there, from step to step within {noise:.1%}", train.name
        )
    else:
        yield contradicts(strong, f"the loss shakes by {noise:.1%} from step to step", train.name)
    if gradient is not None and (norms := gradient.values[gradient.finite]).size >= 100:
        before, after = median(norms[:50]), median(norms[-50:])
        if after > 2 * before:
            yield contradicts(strong, f"gradients have grown, from {before:.2g} to {after:.2g}", gradient.name)
        else:
            yield supports(
                weak, f"gradients are no larger than at the start: {after:.2g}, where it was {before:.2g}", gradient.name
            )


def _not_by_decay(
    findings: Findings, train: Series | None, val: Series | None, rate: Series | None, strong: float, *, beyond: float = 1.1
) -> Iterator[Evidence]:
    """Judge against decay by what it cannot do to a curve that is back where it began; `beyond` leaves room for noise."""
    stands = loss_plateau(train, val)
    if train is None or stands is None or stands.kind != "lost":
        return
    rows = np.flatnonzero(train.finite[:, 0])
    step, losses = int(train.steps[rows[stands.row]]), train.values[rows, 0]
    for jump in findings.of(loss_spike)[:1]:
        if jump.first_step is not None and jump.first_step <= step:
            yield contradicts(2 * strong, f"decay makes no jump, it takes its time: {jump.message}", jump)
    if begins_with_its_run(train.steps[rows]) and stands.level > beyond * (first := float(losses[:10].max())):
        worse = f"a loss of {stands.level:.4g} is above the {first:.4g} of the untrained model, which no shrunk one costs"
        yield contradicts(2 * strong, worse, train.name)
    if broken := findings.first(nonfinite_values):
        yield contradicts(2 * strong, f"weights that shrink overflow nothing: {broken.message}", broken)
    turn = findings.first(loss_rises)
    steps, values = known_rate(rate)
    if turn is None or turn.first_step is None or not (before := values[steps <= turn.first_step]).size:
        return
    if values[steps > turn.first_step].max(initial=0.0) > beyond * before[-1]:
        rises = f"the loss turns at step {turn.first_step} under a rate that still rises, and learning with it"
        yield contradicts(strong, rises, learning_rate.name)


def _steepest_fall(norm: Series) -> tuple[int, float] | None:
    """Return the step after the steepest fall of the median tensor's log norm, and the fall per step."""
    known = norm.recorded_rows()
    logs = np.log(np.where(known.finite & (known.values > 0), known.values, np.nan))
    if len(logs) < 2:
        return None
    falls = -row_medians(np.diff(logs, axis=0)) / np.diff(known.steps)
    if not np.isfinite(falls).any():
        return None
    row = int(np.nanargmax(falls))
    return (int(known.steps[row + 1]), float(falls[row])) if falls[row] > 0 else None
