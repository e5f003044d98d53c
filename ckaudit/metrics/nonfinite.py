"""How many elements of each tensor are NaN or infinite."""

from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled
from ckaudit.run.run import Run
from ckaudit.run.series import Series

SOURCE = "catalogue M60"


@metric(unit="elements", reads=["weights.*.nonfinite_count", "weights.*.mean"], source=SOURCE, memory=1)
def nonfinite_weights(run: Run) -> Series:
    r"""Elements of each weight tensor that are NaN or infinite.

    $$n_p = \sum_i \mathbb{1}[\,\neg\,\mathrm{isfinite}(W_{p,i})\,]$$

    Shape (C, P): checkpoints by tensors. Where the writer did not count, a finite mean says 0, and a mean that is not finite
    is NaN here: there are some, nobody knows how many.
    """
    return _counted(run, "weights")


@metric(unit="elements", reads=["gradients.*.nonfinite_count"], source=SOURCE, memory=1)
def nonfinite_gradients(run: Run) -> Series:
    r"""Elements of each tensor's gradient that are NaN or infinite.

    $$n_p = \sum_i \mathbb{1}[\,\neg\,\mathrm{isfinite}(G_{p,i})\,]$$

    Shape (C, P): checkpoints by tensors. Not recorded where the writer did not count. Under a loss scaler such a step
    is an overflow, and its update is skipped.
    """
    return run.series("gradients", "nonfinite_count")


@metric(unit="elements", reads=["activations.*.nonfinite_count", "activations.*.mean"], source=SOURCE, memory=1)
def nonfinite_activations(run: Run) -> Series:
    r"""Elements of each module's output that are NaN or infinite.

    $$n_m = \sum_i \mathbb{1}[\,\neg\,\mathrm{isfinite}(A_{m,i})\,]$$

    Shape (C, M): checkpoints by modules. Where the writer did not count, the mean speaks, as of weights.
    """
    return _counted(run, "activations")


def _counted(run: Run, section: str) -> Series:
    """Return the counts of a section, and what its means say where there is none."""
    mean = run.series(section, "mean")
    return filled(run.series(section, "nonfinite_count"), mean.mapped(lambda means: means * 0, "nonfinite_count", "elements"))
