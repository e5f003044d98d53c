"""How many elements of each tensor are NaN or infinite."""

from ckaudit.metrics.metric import metric
from ckaudit.run.run import Run
from ckaudit.run.series import Series

SOURCE = "catalogue M60"


@metric(unit="elements", reads=["weights.*.nonfinite_count"], source=SOURCE, memory=1)
def nonfinite_weights(run: Run) -> Series:
    r"""Elements of each weight tensor that are NaN or infinite.

    $$n_p = \sum_i \mathbb{1}[\,\neg\,\mathrm{isfinite}(W_{p,i})\,]$$

    Shape (C, P): checkpoints by tensors. Not recorded where the writer did not count.
    """
    return run.series("weights", "nonfinite_count")


@metric(unit="elements", reads=["gradients.*.nonfinite_count"], source=SOURCE, memory=1)
def nonfinite_gradients(run: Run) -> Series:
    r"""Elements of each tensor's gradient that are NaN or infinite.

    $$n_p = \sum_i \mathbb{1}[\,\neg\,\mathrm{isfinite}(G_{p,i})\,]$$

    Shape (C, P): checkpoints by tensors. Not recorded where the writer did not count. Under a loss scaler such a step
    is an overflow, and its update is skipped.
    """
    return run.series("gradients", "nonfinite_count")


@metric(unit="elements", reads=["activations.*.nonfinite_count"], source=SOURCE, memory=1)
def nonfinite_activations(run: Run) -> Series:
    r"""Elements of each module's output that are NaN or infinite.

    $$n_m = \sum_i \mathbb{1}[\,\neg\,\mathrm{isfinite}(A_{m,i})\,]$$

    Shape (C, M): checkpoints by modules. Not recorded where the writer did not count.
    """
    return run.series("activations", "nonfinite_count")
