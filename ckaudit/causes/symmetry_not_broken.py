"""The initial weights are all equal."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.report import Evidence
from ckaudit.metrics.weights import weight_std
from ckaudit.rules.activation_drift import activation_drift
from ckaudit.rules.barely_moving import barely_moving
from ckaudit.rules.dead_parameter import dead_parameter
from ckaudit.rules.layer_not_contributing import layer_not_contributing
from ckaudit.rules.loss_not_falling import loss_not_falling
from ckaudit.rules.loss_spike import loss_spike
from ckaudit.rules.uniform_heads import uniform_heads
from ckaudit.rules.update_out_of_band import update_out_of_band
from ckaudit.rules.vanishing_gradient import vanishing_gradient
from ckaudit.rules.weights_alike import weights_alike
from ckaudit.rules.zero_gradients import zero_gradients
from ckaudit.run.series import Series


@cause(
    prior=-0.5,
    explains=[weights_alike],
    follows=[
        activation_drift, barely_moving, dead_parameter, layer_not_contributing, loss_not_falling, loss_spike, uniform_heads,
        update_out_of_band, vanishing_gradient, zero_gradients,
    ],
    wants=[weight_std],
    knob="Draw every matrix at random; look for a constant fill, or an initialization that was skipped for this kind of tensor.",
    inspect="Spread of each matrix at step 0, and the code that initializes those named.",
    runbook="Nothing to save, for equal units stay equal: begin again from random weights.",
)  # fmt: skip
def symmetry_not_broken(
    found: Findings, std: Series | None, *, decisive: float = 4.0, strong: float = 2.0, medium: float = 1.0
) -> Iterator[Evidence]:
    """The initial weights are all equal, so that units cannot become different.

    Units with equal weights get equal gradients, so that a matrix without spread at its first record began so; one that loses
    its spread later was written to.
    Weights are starting values, to be fitted on runs of known truth.
    """
    first = found.first(weights_alike)
    if first is None or first.first_step is None or std is None or not len(std.steps):
        return
    if first.first_step > int(std.steps[0]):
        yield contradicts(strong, f"the weights had a spread before step {first.first_step}: something wrote over it", first)
        return
    count = 1 + len(first.also)
    yield supports(
        decisive, f"{count} matrices have elements that are all equal at step {first.first_step}, the first recorded", first
    )
    if later := found.first(dead_parameter, uniform_heads):
        yield supports(medium, f"units that are copies of each other cannot choose: {later.message}", later)
