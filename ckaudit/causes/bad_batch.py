"""One batch holds what the loss cannot digest."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.report import Evidence, Finding
from ckaudit.metrics.optimizer import loss_scale
from ckaudit.rules.entropy_collapse import entropy_collapse
from ckaudit.rules.exploding_gradient import exploding_gradient
from ckaudit.rules.loss_spike import loss_spike
from ckaudit.rules.nonfinite_values import nonfinite_values
from ckaudit.rules.update_out_of_band import update_out_of_band
from ckaudit.run.series import Series


@cause(
    prior=-1.0,
    explains=[nonfinite_values],
    wants=[loss_scale],
    knob="Skip steps whose loss is not finite; look at that batch: empty targets, a division by a zero count, a corrupt sample.",
    inspect="The batch of the first bad step, and the history of the checkpoint after it.",
    runbook="Stop. Keep the last good checkpoint and the batch's hash; feed that batch alone through the last good weights.",
)
def bad_batch(
    found: Findings,
    scale: Series | None,
    *,
    lead: int = 20,
    strong: float = 2.5,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """One batch makes the loss non-finite out of a healthy state.

    Signs of illness within `lead` steps before the first bad value speak against it.
    Weights are starting values, to be fitted on runs of known truth.
    """
    first = found.first(nonfinite_values)
    if first is None or first.first_step is None:
        return
    signs = found.before(first.first_step).of(loss_spike, exploding_gradient, update_out_of_band, entropy_collapse)
    near = [each for each in signs if _ends_near(each, first.first_step, lead)]
    if near:
        yield contradicts(strong, f"the run was ill before: {near[0].message}", near[0])
    elif first.first_step > lead:
        yield supports(strong, f"nothing was wrong in the steps before step {first.first_step}", first)
    if first.where == "train_loss_raw":
        yield supports(medium, f"the loss itself is the first to break, at step {first.first_step}", first)
    if scale is not None:
        yield contradicts(medium, "a loss scaler is at work: half precision may have overflowed", scale.name)


def _ends_near(finding: Finding, step: int, lead: int) -> bool:
    return finding.last_step is not None and finding.last_step >= step - lead
