"""The model trains in evaluation mode."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, supports
from ckaudit.contract.schema.report import Evidence
from ckaudit.rules.evaluation.trained_in_evaluation_mode import trained_in_evaluation_mode
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.loss.gap_widens import gap_widens
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.loss.loss_rises import loss_rises
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.loss.overfitting import overfitting
from ckaudit.rules.precision.nonfinite_values import nonfinite_values

UNNORMALIZED = (exploding_gradient, nonfinite_values, loss_rises, loss_not_falling)
"""What follows where batch norm uses statistics that are not those of its inputs."""


@cause(
    prior=0.0,
    explains=[trained_in_evaluation_mode],
    follows=[overfitting, gap_widens, loss_spike, *UNNORMALIZED],
    knob="Call model.train() after each evaluation, and at the start of each epoch.",
    inspect="The model's training flag at the first pass of a step, and who calls model.eval().",
    runbook="Go back to the last checkpoint before the mode was switched: statistics of batch norm stand still since then.",
)
def training_in_evaluation_mode(findings: Findings, *, decisive: float = 4.0) -> Iterator[Evidence]:
    """The model trains in evaluation mode: a call of model.eval() that nothing takes back.

    What the recorder saw of the mode is decisive; nothing else tells it. Log odds are on the common scale (`causes/cause.py`).
    """
    if seen := findings.first(trained_in_evaluation_mode):
        yield supports(decisive, seen.message, seen)
