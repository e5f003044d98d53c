"""NUM001: a NaN or an infinity."""

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.gradients import grad_global_norm, gradient_norm
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.metrics.nonfinite import nonfinite_activations, nonfinite_gradients, nonfinite_weights
from ckaudit.metrics.observability import nan_inf_events
from ckaudit.metrics.optimizer import opt_state_finite, skipped_updates
from ckaudit.rules.rule import Hit, Skip, needs_one_of, rule
from ckaudit.run.cancelled_gradients import never_applied, never_applied_counts
from ckaudit.run.series import Mask, Series, at
from ckaudit.run.spans import spans


@rule(
    "NUM001",
    severity="sev0",
    needs=[],
    unit="values",
    memory=1,
    wants=[
        train_loss_raw,
        val_loss,
        grad_global_norm,
        gradient_norm,
        nonfinite_weights,
        nonfinite_gradients,
        nonfinite_activations,
        skipped_updates,
        opt_state_finite,
        nan_inf_events,
    ],
)
def nonfinite_values(
    loss: Series | None,
    val: Series | None,
    norm: Series | None,
    norms: Series | None,
    weights: Series | None,
    gradients: Series | None,
    activations: Series | None,
    overflow: Series | None,
    moments: Series | None,
    events: Series | None,
) -> Iterator[Hit | Skip]:
    """A NaN or an infinity was recorded.

    ## What it checks
    The loss, the gradient norms, the counts of non-finite elements in weights, gradients and activations (M60), and whether the
    optimizer's moments are finite (M12). Where none of these shows anything, the trainer's own count of such events is read. A
    single value that is not finite is too many (SEV0-1).
    ## Why it matters
    A NaN in the weights never leaves them; every step after it is lost.
    ## False alarms
    Where the loss scaler saw the overflow and skipped the update, infinite gradients are its ordinary work and are left out. A
    record without a loss scale shows the same where the gradient is finite again later, which it never is once weights are
    broken.
    """
    if all(series is None for series in (loss, val, norm, norms, weights, gradients, activations, moments, events)):
        yield needs_one_of(
            train_loss_raw,
            val_loss,
            grad_global_norm,
            gradient_norm,
            nonfinite_weights,
            nonfinite_gradients,
            nonfinite_activations,
            opt_state_finite,
            nan_inf_events,
        )
        return
    seen = [
        *_of_losses(loss, val, norm, overflow),
        *(
            ()
            if norms is None
            else _bad(norms, norms.nonfinite & ~_left_out(norms, overflow), "the gradient of {where} is not finite")
        ),
        *_of_counts(weights, gradients, activations, moments, overflow),
    ]
    yield from seen
    if events is not None and not seen:
        counted = (np.nan_to_num(events.values) > 0) & ~_skipped(events, overflow)
        if norm is not None and counted.any():  # a gradient that was never applied is all that is counted at its step
            counted &= ~(np.isin(events.steps, norm.steps[never_applied(norm).any(axis=1)])[:, None] & (events.values <= 1))
        yield from _bad(events, counted, "{value:.0f} NaN or infinite values were counted by the trainer")


def _of_losses(loss: Series | None, val: Series | None, norm: Series | None, overflow: Series | None) -> Iterator[Hit]:
    """Yield losses and gradient norms that are not finite."""
    for series, what in ((loss, "the training loss"), (val, "the validation loss")):
        if series is not None:
            yield from _bad(series, series.nonfinite, what + " is not finite")
    if norm is not None:
        yield from _bad(norm, norm.nonfinite & ~_left_out(norm, overflow), "the gradient norm is not finite")


def _of_counts(
    weights: Series | None, gradients: Series | None, activations: Series | None, moments: Series | None, overflow: Series | None
) -> Iterator[Hit]:
    """Yield weights, gradients and outputs of which checkpoints count non-finite elements, and moments that are not finite."""
    if moments is not None:
        for span in spans(moments, moments.values == 0):
            yield Hit.over(span, "sev0", "a moment of the optimizer is not finite", badness=-moments.values)
    for series, what in ((weights, "weights of"), (gradients, "gradients of"), (activations, "outputs of")):
        if series is not None:
            left_out = np.zeros(series.values.shape, bool)
            if series is gradients:
                left_out = never_applied_counts(series) if overflow is None else _skipped(series, overflow)
            counted = np.nan_to_num(series.values) > 0
            yield from _bad(series, counted & ~left_out, "{value:.0f} " + what + " {where} are not finite")
            yield from _bad(series, series.nonfinite & ~left_out, what + " {where} are not finite")


def _left_out(norms: Series, overflow: Series | None) -> Mask:
    """Return which gradient norms belong to a skipped update: the scaler says so, or a later gradient is finite."""
    return never_applied(norms) if overflow is None else _skipped(norms, overflow)


def _skipped(series: Series, overflow: Series | None) -> Mask:
    """Return which cells are of a step whose update the loss scaler skipped."""
    if overflow is None:
        return np.zeros(series.values.shape, bool)
    overflows = at(overflow, series.steps)
    return np.broadcast_to((overflows.values > 0) & (overflows.age == 0), series.values.shape)


def _bad(series: Series, mask: Mask, message: str) -> Iterator[Hit]:
    """Yield a hit for each interval in which cells are not finite; `mask` is of shape (T, P)."""
    if not mask.any():
        return
    count = np.nan_to_num(np.where(series.nonfinite, 1.0, series.values), nan=1.0)
    for span in spans(series, mask, among=series.recorded):
        # The first of several places in the model tells more than the one with most elements: none is called the worst.
        yield replace(Hit.over(span, "sev0", message, badness=count), badness=None)
