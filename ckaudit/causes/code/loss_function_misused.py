"""The loss function is called on what it does not take."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.loss_function import MISFITS, loss_input_misfit
from ckaudit.rules.loss.initial_loss_off import initial_loss_off
from ckaudit.rules.loss.loss_below_floor import loss_below_floor
from ckaudit.rules.loss.loss_inputs_wrong import loss_inputs_wrong
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.loss.loss_oscillates import loss_oscillates
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.weights.weights_grow import weights_grow
from ckaudit.run.medians import median
from ckaudit.run.series import Series


@cause(
    prior=-1.0,
    good_checkpoint="none",
    explains=[loss_inputs_wrong, loss_below_floor, loss_not_falling],
    follows=[initial_loss_off, loss_oscillates, update_out_of_band, weights_grow],
    wants=[loss_input_misfit],
    knob="Put a log_softmax before nll_loss, or call cross_entropy; give outputs and targets one shape, with squeeze or view.",
    inspect="The shapes of what the loss function is called on, and whether the exponentials of a row sum to one.",
    runbook="Stop; what was learnt is not what was meant. On one batch compute the loss by hand, row by row, and compare.",
)
def loss_function_misused(findings: Findings, misfit: Series | None, *, decisive: float = 4.0) -> Iterator[Evidence]:
    """The loss function is called on what it does not take.

    This is seen where the loss function is called, or not at all:

    - A negative log-likelihood of numbers that are no log-probabilities has no lower bound and falls for ever.
    - Outputs of shape (N, 1) beside targets of shape (N,) are each compared with all targets, which teaches every output the mean
      of the batch.
    """
    wrong = findings.first(loss_inputs_wrong)
    given = None if misfit is None else misfit.only(lambda label: label != MISFITS[0]).recorded_rows()
    if wrong is None or given is None or not given.finite.any() or median(given.values[given.finite]) == 0:
        yield contradicts(2 * decisive, "nothing was seen that the loss function does not take", loss_input_misfit.name)
        return
    yield supports(decisive, wrong.message, wrong)
