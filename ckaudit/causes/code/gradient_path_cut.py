"""The gradient is detached, so that everything before it stands still."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, first_and_others, places_of, supports
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.gradients import gradient_norm
from ckaudit.rules.activations.dead_units import dead_units
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.gradients.zero_gradients import zero_gradients
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.frozen_parameter import frozen_parameter
from ckaudit.rules.updates.layer_not_contributing import layer_not_contributing
from ckaudit.run.series import Series
from ckaudit.run.tensors import TensorTable, table_of


@cause(
    prior=-0.5,
    explains=[frozen_parameter, barely_moving, dead_parameter],
    follows=[layer_not_contributing, vanishing_gradient, zero_gradients],
    wants=[FACTS, gradient_norm],
    knob="Take out what cuts the graph there: detach(), no_grad(), .data, a NumPy round trip, reentrant checkpointing.",
    inspect="The input of the first block that learns: it should have a grad_fn.",
    runbook="Save the weights; on one batch, look where requires_grad is lost on the way forward.",
)
def gradient_path_cut(
    findings: Findings,
    facts: Manifest | None,
    norm: Series | None,
    *,
    full: float = 0.999,
    decisive: float = 4.0,
    strong: float = 2.0,
) -> Iterator[Evidence]:
    """The forward pass goes on but the gradient is detached, so that everything before that place stands still.

    A cut stops the gradient of all tensors up to one block and of none behind it, or of all tensors of one branch. It does so
    from the start or from some step on. Log odds are on the common scale (`causes/cause.py`). These are no sign of a cut:

    - Tensors that do not ask for a gradient.
    - A gradient of zero where a module behind it puts out zeros alone: a share of `full` of its outputs or more.
    - A gradient of zero of a weight whose bias has a gradient: nothing but zeros comes in there.
    """
    tensors = table_of(facts)
    standing = [finding for finding in findings.of(frozen_parameter, barely_moving) if finding.severity != "sev1"]
    still = places_of(standing)
    dead = places_of([finding for finding in findings.of(dead_parameter) if finding.value == 0])
    if shut := {place for place in still if not tensors.is_trainable(place)}:
        yield contradicts(decisive, f"{first_and_others(shut)}: not asked for a gradient at all", "MOVE003")
        return
    whole = [finding for finding in findings.of(dead_units) if isinstance(finding.value, float) and finding.value >= full]
    never = {place for place in still if norm is not None and place not in norm.places}
    if lost := {place for finding in standing for place in places_of([finding]) if _has_no_more(norm, place, finding.first_step)}:
        since = min(finding.first_step or 0 for finding in standing)
        yield supports(
            strong, f"no gradient is made for {first_and_others(lost)} from step {since} on, which ask for one", "gradient_norm"
        )
        never |= lost
    elif never:
        yield supports(strong, f"no gradient was ever made for {first_and_others(never)}, which ask for one", "gradient_norm")
    if dead and not never and whole:
        yield contradicts(
            decisive, f"outputs of zero let exactly no gradient through, and nothing is cut: {whole[0].message}", whole[0]
        )
    before = never | dead
    behind = {label for label in (norm.labels if norm is not None else ()) if label not in before}
    if fed_zeros := {place for place in dead if place.endswith(".weight") and place.removesuffix("weight") + "bias" in behind}:
        what = f"the bias beside {first_and_others(fed_zeros)} has a gradient: only zeros come in there, and nothing is cut"
        yield contradicts(decisive, what, "gradient_norm")
    alive = _first_alive(before, behind, tensors)
    if alive is not None:
        yield supports(strong, f"all that has no gradient comes before {alive}, and all behind it has one", "gradient_norm")
    elif never and (branch := next((finding.group for finding in findings.of(frozen_parameter) if finding.group), None)):
        yield supports(strong / 2, f"a whole branch stands still, {branch}: what it puts out is detached, or not used", "MOVE003")
    else:
        yield contradicts(strong, "tensors without a gradient are not those before one block", "gradient_norm")


def _has_no_more(norm: Series | None, place: str, since: int | None) -> bool:
    """Tell whether a tensor had a gradient before a step, and none from then on."""
    if norm is None or place not in norm.places or since is None:
        return False
    recorded = norm.recorded[:, norm.places[place]]
    return bool(recorded[norm.steps < since].any()) and not bool(recorded[norm.steps >= since].any())


def _first_alive(before: set[str], behind: set[str], tensors: TensorTable) -> str | None:
    """Return the first place with a gradient, or None where some tensor before it has a gradient or no tensor is dead.

    run.json lists tensors in the order of the model; without it their depth counts.
    """
    order = {name: place for place, name in enumerate(tensors.facts)}
    if before and behind and before | behind <= order.keys():
        first = min(behind, key=order.__getitem__)
        return first if max(map(order.__getitem__, before)) < order[first] else None
    dead = {depth for name in before if (depth := tensors.depth(name)) is not None}
    alive = {depth for name in behind if (depth := tensors.depth(name)) is not None}
    if not dead or not alive or max(dead) >= min(alive):
        return None
    return f"block {min(alive)}"
