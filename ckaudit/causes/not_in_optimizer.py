"""A trainable tensor was never given to the optimizer, or its updates are lost."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.report import Evidence
from ckaudit.metrics.gradients import gradient_norm
from ckaudit.rules.barely_moving import barely_moving
from ckaudit.rules.dead_parameter import dead_parameter
from ckaudit.run.series import Series


@cause(
    prior=-1.0,
    explains=[barely_moving],
    wants=[gradient_norm],
    knob="Build the optimizer from model.parameters() after all wrapping and casting; see that its step is called.",
    inspect="Parameter groups of the optimizer against the model's trainable tensors.",
    runbook="Save the configuration; compare the tensors in the optimizer with the model's before the first step.",
)
def not_in_optimizer(found: Findings, norm: Series | None, *, strong: float = 2.5) -> Iterator[Evidence]:
    """A tensor gets a gradient and no update: the optimizer does not hold it, or its step is not applied.

    Weights are starting values, to be fitted on runs of known truth.
    """
    frozen = [each for each in found.of(barely_moving) if each.severity == "sev1"]
    if not frozen:
        yield contradicts(strong, "every tensor is updated, if little", "MOVE001")
        return
    places = {place for each in frozen for place in (each.where, *each.also) if place}
    dead = {place for each in found.of(dead_parameter) for place in (each.where, *each.also)}
    fed = sorted(place for place in places - dead if norm is not None and place in norm.labels)
    if fed:
        yield supports(
            strong,
            f"{fed[0]} gets a gradient and is never updated" + (f", with {len(fed) - 1} more" if fed[1:] else ""),
            frozen[0],
        )
    if places & dead:
        yield contradicts(strong, f"{min(places & dead)} gets no gradient either", "GRAD003")
