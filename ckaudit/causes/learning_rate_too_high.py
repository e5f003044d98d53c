"""The learning rate is too high for the curvature."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.report import Evidence
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.weights import update_to_weight_global
from ckaudit.rules.entropy_collapse import entropy_collapse
from ckaudit.rules.exploding_gradient import exploding_gradient
from ckaudit.rules.loss_spike import loss_spike
from ckaudit.rules.nonfinite_values import nonfinite_values
from ckaudit.rules.update_out_of_band import update_out_of_band
from ckaudit.run.series import Series


@cause(
    prior=-1.0,
    explains=[update_out_of_band, loss_spike, exploding_gradient, entropy_collapse, nonfinite_values],
    wants=[learning_rate, update_to_weight_global],
    knob="Lower the peak learning rate by a factor of 3 to 10, or lengthen the warm-up.",
    inspect="Update over weight norm against the gradient norm, at the first checkpoint of the incident.",
    runbook="Keep the last checkpoint before the first finding; resume from it with the lower rate, on the same batches.",
)
def learning_rate_too_high(
    found: Findings, rate: Series | None, update: Series | None, *, large_update: float = 0.03,
    usual_rate: float = 1e-2, strong: float = 2.0, medium: float = 1.0,
) -> Iterator[Evidence]:  # fmt: skip
    """The learning rate is too high for the curvature of the loss.

    Updates above `large_update` of the weights are large; few recipes go beyond a learning rate of `usual_rate`.
    Weights are starting values, to be fitted on runs of known truth.
    """
    if band := [each for each in found.of(update_out_of_band) if _above(each.value, each.limit)]:
        yield supports(strong, band[0].message, band[0])
    if update is not None:
        yield from _updates(update, large_update, medium)
    if rate is not None and rate.finite.any():
        peak = float(np.nanmax(rate.values[rate.finite]))
        if peak > usual_rate:
            yield supports(
                medium, f"the learning rate peaks at {peak:.2g}; few recipes go beyond {usual_rate:.0e}", learning_rate.name
            )
        if _already_decayed(found, rate, peak):
            yield contradicts(
                medium, "the trouble begins when the learning rate is already far below its peak", learning_rate.name
            )
    several = {
        each.code for each in found.of(loss_spike, exploding_gradient, entropy_collapse) if each.severity in ("sev0", "sev1")
    }
    if len(several) > 1:
        yield supports(medium, "loss, gradient and attention go wrong together, not one of them", min(several))
    if (broken := found.first(nonfinite_values)) and not found.before(broken.first_step or 0).of(
        loss_spike, exploding_gradient, update_out_of_band, entropy_collapse
    ):
        yield contradicts(strong, "nothing grew before the first non-finite value", broken)


def _above(value: float | str | None, limit: float | str | None) -> bool:
    return value is not None and limit is not None and float(value) > float(limit)


def _updates(update: Series, large: float, weight: float) -> Iterator[Evidence]:
    """Judge the usual update of the second half of the record: early steps of a small model are always large."""
    usual = update.late_median()
    if usual is not None and usual > large:
        yield supports(weight, f"an update changes {usual:.2g} of the weights (median); {large:g} is already much", update.name)
    elif usual is not None and usual < large / 3:
        yield contradicts(weight / 2, f"an update changes only {usual:.2g} of the weights (median)", update.name)


def _already_decayed(found: Findings, rate: Series, peak: float, *, share: float = 0.3) -> bool:
    first = found.first(loss_spike, exploding_gradient)
    if first is None or first.first_step is None:
        return False
    before = rate.until(first.first_step)
    known = before.values[before.finite]
    return bool(known.size and known[-1] < share * peak and known.max() >= peak)
