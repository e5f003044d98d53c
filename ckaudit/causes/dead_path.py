"""A part of the model is cut off from the loss."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.report import Evidence
from ckaudit.metrics.gradients import gradient_norm
from ckaudit.rules.barely_moving import barely_moving
from ckaudit.rules.dead_parameter import dead_parameter
from ckaudit.rules.exploding_gradient import exploding_gradient
from ckaudit.rules.loss_spike import loss_spike
from ckaudit.rules.nonfinite_values import nonfinite_values
from ckaudit.rules.update_out_of_band import update_out_of_band
from ckaudit.run.series import Series


@cause(
    prior=-0.5,
    explains=[dead_parameter, barely_moving],
    wants=[gradient_norm],
    knob="Find what multiplies the path by zero or detaches it: a mask, a zeroed projection, requires_grad, a wrong index.",
    inspect="Relative movement of all tensors, and the gradient of the first tensor behind the cut.",
    runbook="Save the checkpoint; on one batch, follow the gradient from the loss back and see where it becomes zero.",
)
def dead_path(
    found: Findings, norm: Series | None, *, few: float = 0.5, strong: float = 2.0, medium: float = 1.0
) -> Iterator[Evidence]:
    """A path through the model is cut off from the loss.

    Where more than `few` of all tensors get no gradient, it is not one path.
    Weights are starting values, to be fitted on runs of known truth.
    """
    dead = found.of(dead_parameter)
    still = {place for each in found.of(barely_moving) for place in (each.where, *each.also)}
    if not dead:
        yield contradicts(strong, "every tensor gets a gradient", "gradient_norm")
        return
    if earlier := found.before(dead[0].first_step or 0).of(loss_spike, exploding_gradient, update_out_of_band, nonfinite_values):
        yield contradicts(strong, f"the run was ill before: {earlier[0].message}", earlier[0])
    places = {place for each in dead for place in (each.where, *each.also) if place}
    if norm is not None:
        total = len(norm.labels)
        if len(places) <= few * total:
            yield supports(strong, f"{len(places)} of {total} tensors get no gradient, the others are well", dead[0])
        else:
            yield contradicts(medium, f"{len(places)} of {total} tensors get no gradient: nearly all of them", dead[0])
    if overlap := sorted(places & still):
        yield supports(
            medium, f"{overlap[0]} stands still too" + (f", and {len(overlap) - 1} more" if overlap[1:] else ""), "MOVE001"
        )
    if all(each.value == 0 for each in dead):
        yield supports(medium, "their gradient is exactly zero, not merely small", dead[0])
