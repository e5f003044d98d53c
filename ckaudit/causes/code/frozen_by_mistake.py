"""Tensors that should learn do not ask for a gradient."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, first_and_others, places_of, supports
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.gradients import gradient_norm
from ckaudit.rules.attention.uniform_heads import uniform_heads
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.starved_branch import starved_branch
from ckaudit.rules.gradients.zero_gradients import zero_gradients
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.frozen_parameter import frozen_parameter
from ckaudit.rules.updates.layer_not_contributing import layer_not_contributing
from ckaudit.run.series import Series
from ckaudit.run.tensors import table_of


@cause(
    prior=0.0,
    explains=[frozen_parameter],
    follows=[
        starved_branch,
        barely_moving,
        dead_parameter,
        layer_not_contributing,
        loss_not_falling,
        uniform_heads,
        zero_gradients,
    ],
    wants=[FACTS, gradient_norm],
    knob="Set requires_grad of these tensors before the optimizer is built, or declare them in the configuration's `frozen`.",
    inspect="Every place that sets requires_grad, in code and in what is loaded; which tensors it matches.",
    runbook="Save the weights: what else has learnt is of use. List the trainable tensors at the start of each run.",
)
def frozen_by_mistake(
    findings: Findings, facts: Manifest | None, gradient: Series | None, *, decisive: float = 4.0, weak: float = 0.5
) -> Iterator[Evidence]:
    """Tensors that should learn do not ask for a gradient, and nothing says that this is meant.

    What the run records of each tensor, whether it is trainable, is decisive either way. Log odds are on the common scale
    (`causes/cause.py`).
    """
    tensors = table_of(facts)
    still = places_of(findings.of(frozen_parameter))
    shut = {place for place in still if not tensors.is_trainable(place)}
    if later := {place for place in still if gradient is not None and place in gradient.places}:
        yield supports(
            decisive, f"{first_and_others(later)}: trained at first, and then neither a gradient nor an update", "MOVE003"
        )
        return
    if not shut:
        yield contradicts(decisive, "they ask for a gradient, and get none", "MOVE003")
        return
    yield supports(decisive, f"{first_and_others(shut)}: not trainable, as run.json has it, and nothing declares it", "MOVE003")
    parts = {(tensors.block(place), tensors.kind(place) if tensors.block(place) is None else "") for place in shut}
    if len(parts) == 1:
        yield supports(weak, "they are one part of the model: one line of code shuts them", "MOVE003")
