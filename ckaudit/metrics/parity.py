"""Parity: this implementation compared with a reference on the same batch, and gradients with finite differences."""

from ckaudit.metrics.metric import metric
from ckaudit.run.run import Run
from ckaudit.run.series import Series


@metric(unit="nats/token", reads=["parity.loss_diff", "parity_loss_diff"], source="playbook D1.4", memory=1)
def parity_loss_diff(run: Run) -> Series:
    r"""Absolute difference between this loss and that of the reference.

    $$|L - L_{ref}|$$

    Shape (C, 1), or (T, 1) if it is logged under this name. Below 1e-6 is good in float32.
    """
    return run.value("parity.loss_diff") or run.scalar("parity_loss_diff")


@metric(
    unit="1", reads=["parity.relative_param_diff", "parity.param_diff", "parity_param_diff"], source="playbook D1.4", memory=1
)
def parity_param_diff(run: Run) -> Series:
    r"""Largest difference between a parameter and that of the reference, relative to its magnitude if that is recorded.

    $$\max_i |w_i - w_i^{ref}| / \max_i |w_i|$$

    Shape (C, 1), or (T, 1) if it is logged under this name. Below 1e-5 is good in float32; the absolute difference is used if no
    relative one is recorded.
    """
    relative, logged = run.value("parity.relative_param_diff"), run.scalar("parity_param_diff")
    return relative or run.value("parity.param_diff") or logged


@metric(unit="1", reads=["parity.gradient_error"], source="playbook MAP-2; Press et al. 2007, section 5.7", memory=1)
def gradient_check_error(run: Run) -> Series:
    r"""Largest relative difference between a gradient and the central difference of the loss.

    $$\max_i \frac{|g_i - d_i|}{\max(|g_i|, |d_i|)}, \qquad d_i = \frac{L(w_i + h) - L(w_i - h)}{2h}$$

    Shape (C, 1): checkpoints at which gradients were checked; 0 to 2, because signs may differ. In float64 a correct backward
    pass stays below 1e-4.
    """
    return run.value("parity.gradient_error")
