"""Parity: this implementation against a reference one on the same batch."""

from ckaudit.metrics.metric import metric
from ckaudit.run.run import Run
from ckaudit.run.series import Series


@metric(unit="nats/token", reads=["parity.loss_diff"], source="playbook D1.4", memory=1)
def parity_loss_diff(run: Run) -> Series:
    r"""Absolute difference of this loss and the reference's.

    $$|L - L_{ref}|$$

    Shape (C, 1). Below 1e-6 is good in float32.
    """
    return run.value("parity.loss_diff")


@metric(unit="1", reads=["parity.relative_param_diff", "parity.param_diff"], source="playbook D1.4", memory=1)
def parity_param_diff(run: Run) -> Series:
    r"""Largest difference of a parameter from the reference's, relative to its magnitude where that was recorded.

    $$\max_i |w_i - w_i^{ref}| / \max_i |w_i|$$

    Shape (C, 1). Below 1e-5 is good in float32; the absolute difference stands in where no relative one was recorded.
    """
    return run.value("parity.relative_param_diff") or run.value("parity.param_diff")
