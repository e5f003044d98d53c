"""Parity: this implementation against a reference one on the same batch, and its gradients against differences."""

from ckaudit.metrics.metric import metric
from ckaudit.run.run import Run
from ckaudit.run.series import Series


@metric(unit="nats/token", reads=["parity.loss_diff", "parity_loss_diff"], source="playbook D1.4", memory=1)
def parity_loss_diff(run: Run) -> Series:
    r"""Absolute difference of this loss and the reference's.

    $$|L - L_{ref}|$$

    Shape (C, 1), or (T, 1) where it was logged by this name. Below 1e-6 is good in float32.
    """
    return run.value("parity.loss_diff") or run.scalar("parity_loss_diff")


@metric(
    unit="1", reads=["parity.relative_param_diff", "parity.param_diff", "parity_param_diff"], source="playbook D1.4", memory=1
)
def parity_param_diff(run: Run) -> Series:
    r"""Largest difference of a parameter from the reference's, relative to its magnitude where that was recorded.

    $$\max_i |w_i - w_i^{ref}| / \max_i |w_i|$$

    Shape (C, 1), or (T, 1) where it was logged by this name. Below 1e-5 is good in float32; the absolute difference stands
    in where no relative one was recorded.
    """
    relative, logged = run.value("parity.relative_param_diff"), run.scalar("parity_param_diff")
    return relative or run.value("parity.param_diff") or logged


@metric(unit="1", reads=["parity.gradient_error"], source="playbook MAP-2; Press et al. 2007, section 5.7", memory=1)
def gradient_check_error(run: Run) -> Series:
    r"""Largest relative difference of a gradient from the central difference of the loss.

    $$\max_i \frac{|g_i - d_i|}{\max(|g_i|, |d_i|)}, \qquad d_i = \frac{L(w_i + h) - L(w_i - h)}{2h}$$

    Shape (C, 1): checkpoints at which gradients were checked; 0 to 2, for signs may differ. In float64 a right backward
    pass stays below 1e-4.
    """
    return run.value("parity.gradient_error")
