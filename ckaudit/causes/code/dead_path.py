"""A part of the model is cut off from the loss."""

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, first_and_others, places_of, supports
from ckaudit.causes.shared.activations import all_zero_module_before
from ckaudit.causes.shared.gradients import partly_zero, quantization_step, without_embeddings
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence, Finding
from ckaudit.contract.schema.tensor_names import is_bias
from ckaudit.metrics.activations import activation_sparsity, dead_unit_fraction
from ckaudit.metrics.gradients import gradient_norm, gradient_zero_fraction
from ckaudit.rules.activations.dead_units import dead_units
from ckaudit.rules.attention.entropy_collapse import entropy_collapse
from ckaudit.rules.attention.logit_growth import logit_growth
from ckaudit.rules.data.input_scale_off import input_scale_off
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.starved_branch import starved_branch
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.gradients.zero_gradients import zero_gradients
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.moe.router_imbalance import router_imbalance
from ckaudit.rules.precision.nonfinite_values import nonfinite_values
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.layer_not_contributing import layer_not_contributing
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.weights.weight_scale_off import weight_scale_off
from ckaudit.rules.weights.weights_alike import weights_alike
from ckaudit.rules.weights.weights_shrink import weights_shrink
from ckaudit.run.series import Series
from ckaudit.run.tensors import table_of

LEAVES_NO_GRADIENT = (dead_units, weights_alike, weight_scale_off, weights_shrink, router_imbalance)
"""Illnesses that leave tensors without a gradient by themselves, whenever they are seen."""
SATURATED = (entropy_collapse, logit_growth)
"""Illnesses that do so only after they have begun: a softmax that attends to a single key has a gradient of zero."""


@cause(
    prior=-0.5,
    explains=[dead_parameter, barely_moving],
    follows=[input_scale_off, starved_branch, layer_not_contributing, zero_gradients],
    wants=[gradient_norm, activation_sparsity, dead_unit_fraction, gradient_zero_fraction, FACTS],
    knob="Inspect upstream gradients and mask logic: find what multiplies the path by zero or detaches it, such as a mask, a "
    "zeroed projection, requires_grad, a wrong index.",
    inspect="The ranking of tensors by relative movement, and the gradient of the first tensor behind the cut.",
    runbook="Save the checkpoint; on one batch, follow the gradient from the loss back and see where it becomes zero.",
)
def dead_path(
    findings: Findings,
    norm: Series | None,
    sparsity: Series | None,
    counted: Series | None,
    zeros: Series | None,
    facts: Manifest | None,
    *,
    few: float = 0.5,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """A path through the model is cut off from the loss.

    Tensors of a path that is cut off have a gradient of zero, or no gradient at all where the path is taken out of the graph.
    Other illnesses look similar:

    - Where more than `few` of all tensors get no gradient, the cause is not one path.
    - Units that never fire, weights without spread or scale, and routers that send nothing to an expert leave tensors without a
      gradient too. Each has a sign of its own.
    - Gradients that are too small become zero as well. Many of the other gradients are then zero in part, and a bias without a
      gradient may stand beside a weight that has one.
    - Where all inputs are zero, the path is cut off before the model.
    - Log odds are on the common scale (`causes/cause.py`).
    """
    dead = findings.of(dead_parameter)
    still = places_of(findings.of(barely_moving))
    if not dead:
        yield from _no_longer_made(findings, norm, few, strong)
        return
    inputs = findings.first(input_scale_off)
    if inputs is not None and inputs.value == 0:
        yield supports(decisive, f"the inputs of {inputs.where} are all zero: nothing comes into the model", inputs)
        return
    before = findings.before(dead[0].first_step or 0)
    if earlier := before.of(loss_spike, exploding_gradient, update_out_of_band, nonfinite_values):
        yield contradicts(strong, f"the run was ill before: {earlier[0].message}", earlier[0])
    if worn := findings.first(vanishing_gradient):
        yield contradicts(strong, f"it is worn down on its way: {worn.message}", worn)
    yield from _by_other_illnesses(findings, before, sparsity, decisive)
    if counted is None and sparsity is not None and (silent := _silent_throughout(sparsity)):
        never = f"all outputs of {silent} are zero at every record: units that never fire leave a path like that too"
        yield contradicts(medium, never, activation_sparsity.name)
    places = places_of(dead)
    if all(map(table_of(facts).is_expert, places)):
        yield contradicts(decisive, "all that gets no gradient is of experts: no token is sent to them", dead[0])
    if norm is not None:
        total, count = len(norm.labels), len(places.intersection(norm.labels) or places)
        if count <= few * total:
            yield supports(strong, f"{count} of {total} tensors get no gradient, the others are well", dead[0])
        else:
            yield contradicts(medium, f"{count} of {total} tensors get no gradient: nearly all of them", dead[0])
        if healed := [finding for finding in dead if _is_back(norm, finding)]:
            again = f"{healed[0].where} has a gradient again after step {healed[0].last_step}: no cut heals"
            yield contradicts(decisive, again, norm.name)
    yield from _by_other_gradients(norm, zeros, facts, places, decisive, strong)
    yield from _by_their_gradient(dead, places & still, strong, medium)


def _by_other_illnesses(findings: Findings, before: Findings, sparsity: Series | None, decisive: float) -> Iterator[Evidence]:
    """Judge by other illnesses that leave no gradient; units that are silent because nothing comes in belong to the path."""
    other = findings.first(*LEAVES_NO_GRADIENT) or before.first(*SATURATED)
    if other is not None and (nothing := all_zero_module_before(sparsity, other.where)) is not None:
        yield supports(decisive, f"all that {nothing} puts out is exactly zero: the path ends there", activation_sparsity.name)
    elif other is not None:
        yield contradicts(decisive, f"there is another reason for it: {other.message}", other)


def _by_their_gradient(dead: Sequence[Finding], unmoved: set[str], strong: float, medium: float) -> Iterator[Evidence]:
    """Judge by whether the gradient of the dead tensors is exactly zero or only small, and by whether they move."""
    if unmoved:
        yield supports(medium, f"{first_and_others(unmoved)}: without movement too", "MOVE001")
    if all(finding.value == 0 for finding in dead):
        yield supports(medium, "their gradient is exactly zero, not merely small", dead[0])
    else:
        yield contradicts(strong, "their gradient is tiny, not zero: it is worn down, not cut off", dead[0])


def _by_other_gradients(
    norm: Series | None, zeros: Series | None, facts: Manifest | None, places: Collection[str], decisive: float, strong: float
) -> Iterator[Evidence]:
    """Judge by gradients that are partly zero, and by weights that have a gradient beside a bias without one."""
    if zeros is not None and (counts := partly_zero(without_embeddings(zeros, facts))) is not None:
        what = f"{counts.partial} of the {counts.alive} gradients that are not zero are so in part: too small, not cut off"
        yield contradicts(strong, what, zeros.name)
    if (step := quantization_step(norm)) is not None:
        yield contradicts(decisive, f"gradients are made of steps of {step:.2g}: what is less became zero", gradient_norm.name)
    biases = {place for place in places if is_bias(place)}
    if norm is None or not biases or biases != {*places}:
        return
    beside = norm.only(lambda name: f"{name.removesuffix('weight')}bias" in biases)
    fed = beside.only(lambda name: bool((np.nan_to_num(beside.values[:, beside.places[name]]) > 0).any()))
    if len(fed.labels) == len(biases):
        what = f"{fed.labels[0]}, beside it in its module, gets a gradient: no path is cut off there"
        yield contradicts(decisive, what, norm.name)


def _no_longer_made(findings: Findings, norm: Series | None, few: float, strong: float) -> Iterator[Evidence]:
    """Judge a run without zero gradients, by tensors that had a gradient and stand still since it is no longer computed."""
    ended = [finding for finding in findings.of(barely_moving) if norm is not None and _has_ended(norm, finding)]
    places = places_of(ended)
    if ended and norm is not None and len(places) <= few * len(norm.labels):
        since = f"no gradient is made for {first_and_others(places)} since step {ended[0].first_step}; one was, before"
        yield supports(strong, since, ended[0])
        return
    yield contradicts(strong, "every tensor that has a gradient has one above zero", "gradient_norm")


def _silent_throughout(sparsity: Series) -> str | None:
    """Return a module that puts out nothing but zeros at every record, None: there is none."""
    known = sparsity.finite.any(axis=0)
    silent = known & (np.where(sparsity.finite, sparsity.values, 1.0) == 1).all(axis=0)
    return sparsity.labels[int(np.argmax(silent))] if silent.any() else None


def _has_ended(norm: Series, still: Finding) -> bool:
    """Tell whether a tensor's gradient was recorded before it stood still, and afterwards only those of others."""
    if still.where not in norm.places or still.first_step is None:
        return False
    own, later = norm.recorded[:, norm.places[still.where]], norm.steps >= still.first_step
    return bool(own[~later].any() and norm.recorded[later].any() and not own[later].any())


def _is_back(norm: Series, dead: Finding) -> bool:
    """Tell whether a tensor that had no gradient has one again."""
    if dead.where not in norm.places or dead.last_step is None:
        return False
    later = norm.values[norm.steps > dead.last_step, norm.places[dead.where]]
    return bool((np.nan_to_num(later) > 0).any())
