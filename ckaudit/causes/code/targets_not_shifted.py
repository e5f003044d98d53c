"""The target of a token is the token itself."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.report import Evidence
from ckaudit.rules.attention.uniform_heads import uniform_heads
from ckaudit.rules.data.target_equals_input import target_equals_input
from ckaudit.rules.data.target_misalignment import target_misalignment
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.dominant_tensor import dominant_tensor
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.loss.loss_below_floor import loss_below_floor
from ckaudit.rules.loss.overfitting import overfitting
from ckaudit.rules.loss.train_val_inverted import train_val_inverted
from ckaudit.rules.updates.update_out_of_band import update_out_of_band


@cause(
    prior=-0.5,
    good_checkpoint="none",
    explains=[target_equals_input, target_misalignment],
    follows=[
        dead_parameter,
        dominant_tensor,
        loss_below_floor,
        overfitting,
        train_val_inverted,
        uniform_heads,
        update_out_of_band,
        vanishing_gradient,
    ],
    knob="Shift the targets by one (targets = tokens[1:], inputs = tokens[:-1]), or mask the tokens that are to be filled in.",
    inspect="The collate function, and whether the model shifts labels itself.",
    runbook="Stop. Decode one row of inputs and of targets side by side; what was trained so far is a copier, not a model.",
)
def targets_not_shifted(
    findings: Findings, *, decisive: float = 4.0, strong: float = 2.0, weak: float = 0.5
) -> Iterator[Evidence]:
    """The target of a token is the token itself: the shift by one is missing, or the mask of what is to be filled in.

    Targets that equal their inputs are decisive. Log odds are on the common scale (`causes/cause.py`).
    """
    same = findings.first(target_equals_input)
    if same is None:
        yield contradicts(strong, "the targets are not the inputs either", "target_equals_input")
        return
    yield supports(decisive, same.message, same)
    if low := findings.first(loss_below_floor):
        yield supports(weak, "the loss falls to nothing, as it does where a token has but to be copied", low)
