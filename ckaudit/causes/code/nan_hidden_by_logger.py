"""The log says zero where the loss was not a number."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, supports
from ckaudit.contract.schema.report import Evidence
from ckaudit.rules.loss.loss_below_floor import loss_below_floor
from ckaudit.rules.loss.loss_frozen import loss_frozen
from ckaudit.rules.precision.hidden_nonfinite import hidden_nonfinite
from ckaudit.rules.precision.impossible_value import impossible_value
from ckaudit.rules.precision.nonfinite_values import nonfinite_values
from ckaudit.rules.precision.skipped_updates import skipped_updates
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.update_out_of_band import update_out_of_band


@cause(
    prior=0.0,
    explains=[hidden_nonfinite],
    follows=[
        barely_moving,
        impossible_value,
        loss_below_floor,
        loss_frozen,
        nonfinite_values,
        skipped_updates,
        update_out_of_band,
    ],
    knob="Turn off what replaces NaN in the log (logging_nan_inf_filter of the Hugging Face Trainer); log what was computed.",
    inspect="The code between loss and log; then what made the loss not finite at the step named.",
    runbook="Stop and read the gradient norm in place of the loss; go back to the last checkpoint whose values are all finite.",
)
def nan_hidden_by_logger(findings: Findings, *, decisive: float = 4.0, weak: float = 0.5) -> Iterator[Evidence]:
    """The log says zero, or repeats itself, where the loss was not a number.

    A finite loss beside values that are not finite cannot have been computed: that is decisive. What broke the loss is a
    cause of its own. Log odds are on the common scale (`causes/cause.py`).
    """
    hidden = findings.first(hidden_nonfinite)
    if hidden is None:
        return
    yield supports(decisive, hidden.message, hidden)
    if broken := findings.first(nonfinite_values):
        yield supports(weak, f"beside it: {broken.message}", broken)
