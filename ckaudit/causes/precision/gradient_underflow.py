"""Gradients are too small for half precision and become zero."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.shared.gradients import (
    MIN_SHARE_OF_GRADIENTS,
    MIN_ZERO_SHARE,
    partly_zero,
    quantization_step,
    without_embeddings,
)
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.activations import activation_sparsity
from ckaudit.metrics.gradients import gradient_norm, gradient_zero_fraction
from ckaudit.metrics.optimizer import loss_scale
from ckaudit.metrics.words import element_type
from ckaudit.rules.activations.dead_units import dead_units
from ckaudit.rules.attention.uniform_heads import uniform_heads
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.starved_branch import starved_branch
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.gradients.zero_gradients import zero_gradients
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.moe.router_imbalance import router_imbalance
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.layer_not_contributing import layer_not_contributing
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.updates.updates_held_back import updates_held_back
from ckaudit.run.column_builder import DTYPES
from ckaudit.run.run_facts import is_single_precision, is_single_process
from ckaudit.run.series import Series


@cause(
    prior=-1.0,
    explains=[zero_gradients, dead_parameter],
    follows=[
        starved_branch,
        barely_moving,
        layer_not_contributing,
        loss_not_falling,
        uniform_heads,
        update_out_of_band,
        updates_held_back,
        vanishing_gradient,
    ],
    wants=[gradient_zero_fraction, loss_scale, element_type, activation_sparsity, FACTS, gradient_norm],
    knob="Scale the loss, dynamically, or train in bfloat16; keep the reduction of gradients in float32.",
    inspect="The loss scale, where gradients are cast, and a histogram of their exponents against 2^-24.",
    runbook="Save a checkpoint; compute one batch's gradient in float32 and count what is zero in half precision and not there.",
)
def gradient_underflow(
    findings: Findings,
    zeros: Series | None,
    scale: Series | None,
    types: Series | None,
    silent: Series | None,
    facts: Manifest | None,
    norm: Series | None,
    *,
    quiet: float = 0.9,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """Gradients are too small for half precision and become zero, element by element.

    Underflow takes the smallest elements of many tensors first:

    - Between a twentieth and all of a gradient is zero in over a quarter of the tensors that get any, embeddings left out, at two
      checkpoints or more.
    - A cut path takes whole tensors, always the same, but not those next to the loss. Where these are zero as well, in float16,
      all of the gradient was too small.
    - A module with over `quiet` of zeros in its output has as many in its gradient, without any underflow.
    - Norms that are made of whole steps were rounded to them, whatever the precision.
    - Modules that compute in single precision lose nothing, but what casts gradients beside them may, such as an exchange between
      ranks. Where whole gradients come and go, in a run of several ranks, nothing else would make them.
    - Log odds are on the common scale (`causes/cause.py`).
    """
    if (step := quantization_step(norm)) is not None:
        what = f"the smallest gradients are made of steps of {step:.2g}: they were rounded, element by element"
        yield supports(decisive, what, gradient_norm.name)
    if zeros is None:
        if step is None:
            yield contradicts(strong, "nothing says how many elements of the gradient are zero", gradient_zero_fraction.name)
        return
    judged = without_embeddings(zeros, facts)
    values = np.where(judged.finite, judged.values, np.nan)
    comes_and_goes = False
    if (counts := partly_zero(judged)) is not None:
        what = f"at step {counts.step} a part of the elements is zero in {counts.partial} of {counts.alive} gradients"
        yield supports(strong, what, zeros.name)
        mixed = int(((values == 1).any(axis=0) & (values < 1).any(axis=0)).sum())
        if comes_and_goes := mixed > MIN_SHARE_OF_GRADIENTS * counts.alive:
            yield supports(
                strong, f"{mixed} gradients are all zeros at some checkpoints and not at others, as their size goes", zeros.name
            )
        if silent is not None and silent.finite.any() and silent.values[silent.finite].max() < MIN_ZERO_SHARE:
            yield supports(medium, "no module puts out zeros that would make any in a gradient", silent.name)
    elif _is_half_precision(types) and judged.finite.any() and (judged.values[judged.finite] == 1).all():
        yield supports(strong, "all of every gradient is zero, to the last tensor of the model, and it is of float16", zeros.name)
    else:
        yield contradicts(strong, "gradients are zero as a whole or not at all", zeros.name)
    may_be_cast = comes_and_goes and not is_single_process(facts)
    yield from _precision(types, scale, strong if may_be_cast else decisive, medium)
    if silent is not None and (silent.values[silent.finite] > quiet).any():
        yield contradicts(
            strong, f"over {quiet:.0%} of the outputs of a module are zero, and so are gradients before it", silent.name
        )
    for other in findings.of(dead_units, router_imbalance)[:1]:
        yield contradicts(strong, f"there is another reason for it: {other.message}", other)


def _is_half_precision(types: Series | None) -> bool:
    """Tell whether anything is in float16."""
    return types is not None and bool((types.values[types.finite] == DTYPES.index("float16")).any())


def _precision(types: Series | None, scale: Series | None, weight: float, medium: float) -> Iterator[Evidence]:
    """Judge whether anything is of half precision, and whether the loss is scaled then."""
    if types is None:
        return
    if is_single_precision(types):
        yield contradicts(weight, "all modules compute in single precision, in which nothing is so small", types.name)
        return
    if _is_half_precision(types):
        if scale is None:
            yield supports(medium, "parts of the model are in float16, and no loss scale is recorded", types.name)
    else:
        yield contradicts(medium / 2, "nothing that is recorded is in float16", types.name)
