"""The loss landscape: noise of the gradient, and curvature."""

from msgspec.structs import replace

from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled, logged_as, ratio, relabelled
from ckaudit.run.run import Run
from ckaudit.run.series import Series


@metric(
    unit="1",
    reads=["grad_noise_trace", "grad_noise_signal", "grad_noise_scale"],
    source="catalogue M16; McCandlish et al. 2018, equation 2.9",
    memory=1,
)
def grad_noise_scale(run: Run) -> Series:
    r"""Gradient noise scale in examples: a much smaller batch wastes steps, a much larger one wastes examples.

    $$B = \operatorname{tr}(\Sigma) / |G|^2$$

    Shape (T, 1): logged steps, in the unit in which the trainer counts its batches. It is computed from the logged means of both
    parts over updates where the second is above 0; elsewhere the logged scale counts.
    """
    trace, signal = (relabelled(run.scalar(f"grad_noise_{part}"), "grad_noise_scale") for part in ("trace", "signal"))
    series = ratio(trace, replace(signal, recorded=signal.recorded & ~(signal.values <= 0)))
    return filled(series, logged_as(run, "grad_noise_scale"))


@metric(unit="1", reads=["curvature_trace_est"], source="catalogue M18; Hutchinson 1989", memory=1)
def curvature_trace_est(run: Run) -> Series:
    r"""Trace of the Hessian of the loss, estimated with random vectors.

    $$\operatorname{tr} H \approx \tfrac1S \sum_s v_s^\top H v_s$$

    Shape (T, 1): steps at which it was measured.
    """
    return run.scalar("curvature_trace_est")


@metric(unit="1", reads=["curvature_trace_error"], source="catalogue M18; Hutchinson 1989", memory=1)
def curvature_trace_error(run: Run) -> Series:
    r"""Standard error of the estimated trace, over the random vectors.

    $$s / \sqrt S$$

    Shape (T, 1): steps at which the trace was measured; NaN for a single vector.
    """
    return run.scalar("curvature_trace_error")
