"""The loss scale overflows, so that updates are skipped."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.gradients import grad_global_norm
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.optimizer import loss_scale
from ckaudit.metrics.words import element_type
from ckaudit.rules.precision.nonfinite_values import nonfinite_values
from ckaudit.rules.precision.overflow import overflow
from ckaudit.rules.precision.skipped_updates import skipped_updates
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.run.cancelled_gradients import never_applied
from ckaudit.run.run_facts import is_loss_scaled, is_single_precision
from ckaudit.run.series import Series


@cause(
    prior=-0.5,
    good_checkpoint="newest",
    explains=[overflow, skipped_updates],
    follows=[barely_moving, nonfinite_values, update_out_of_band],
    wants=[loss_scale, train_loss_raw, element_type, grad_global_norm],
    knob="Let the scale grow after 2,000 good steps, not a few, and start it lower; or train in bfloat16, which needs no scale.",
    inspect="The loss scale on one axis with the skipped updates; the scaler's growth interval and factor.",
    runbook="The weights are sound, a skipped step changes nothing: resume with half of the scale at which it last failed.",
)
def loss_scale_too_high(
    findings: Findings,
    scale: Series | None,
    loss: Series | None,
    types: Series | None,
    norm: Series | None,
    *,
    falls: int = 5,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """The loss scale overflows again and again, so that updates are skipped.

    Signs are the course of the scale, and whether loss and gradients are finite:

    - A scale that fell and rose more than `falls` times each grows faster than the gradients allow. A scaler of the usual kind
      tries once in 2,000 steps.
    - A loss that stays finite says that the gradients themselves are well. Overflows to the end at a scale of 1 or less say that
      they are not.
    - Where no scale is recorded, gradients that were infinite and later finite again tell that somebody left their updates out.
    - Without such gradients, or where the recorded scale is never above 1, the loss is not scaled, which speaks against this
      cause.
    - Log odds are on the common scale (`causes/cause.py`).
    """
    if not is_loss_scaled(scale) and (scale is not None or norm is None or not never_applied(norm).any()):
        yield contradicts(decisive, "no loss scale is recorded, or it is 1 throughout: the loss is not scaled", loss_scale.name)
    if is_single_precision(types):
        yield contradicts(decisive, "all modules compute in single precision, which needs no scale", element_type.name)
    seen = findings.first(overflow)
    if seen is not None:
        yield supports(strong, seen.message, seen)
    else:
        yield contradicts(decisive, "no overflow was seen", "overflow_rate")
    if scale is not None:
        known = scale.values[scale.finite]
        if len(known) and 0 < known[-1] <= 1 < known.max() and seen is not None and seen.last_step == int(scale.steps[-1]):
            yield contradicts(decisive, f"the scale has come down to {known[-1]:.3g}, and it still overflows", scale.name)
        fell, rose = int((np.diff(known) < 0).sum()), int((np.diff(known) > 0).sum())
        if fell > falls and rose > falls:
            yield supports(strong, f"the scale fell {fell} times and rose {rose} times, up to {known.max():.3g}", scale.name)
        elif fell > falls:
            yield contradicts(medium, f"the scale fell {fell} times and hardly rose: the gradients may be infinite", scale.name)
    if loss is not None and loss.nonfinite.any():
        yield contradicts(strong, "the loss is not finite: no scale can help", loss.name)
    elif loss is not None:
        yield supports(medium, "the loss is finite at every step: the gradients overflow by their scale alone", loss.name)
