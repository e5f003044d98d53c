"""Number of NaN or infinite elements of each tensor."""

from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled
from ckaudit.run.run import Run
from ckaudit.run.series import Series

SOURCE = "catalogue M60"


@metric(unit="elements", reads=["weights.*.nonfinite_count", "weights.*.mean"], source=SOURCE, memory=1)
def nonfinite_weights(run: Run) -> Series:
    r"""Number of NaN or infinite elements of each weight tensor.

    $$n_p = \sum_i \mathbb{1}[\,\neg\,\mathrm{isfinite}(W_{p,i})\,]$$

    Shape (C, P): checkpoints by tensors. If the writer did not count, a finite mean gives 0, and a non-finite mean gives NaN:
    there are some, but their number is unknown.
    """
    return _counted(run, "weights")


@metric(unit="elements", reads=["gradients.*.nonfinite_count"], source=SOURCE, memory=1)
def nonfinite_gradients(run: Run) -> Series:
    r"""Number of NaN or infinite elements of each tensor's gradient.

    $$n_p = \sum_i \mathbb{1}[\,\neg\,\mathrm{isfinite}(G_{p,i})\,]$$

    Shape (C, P): checkpoints by tensors. Not recorded if the writer did not count. With a loss scaler such a step is an overflow,
    and its update is skipped.
    """
    return run.series("gradients", "nonfinite_count")


@metric(unit="elements", reads=["activations.*.nonfinite_count", "activations.*.mean"], source=SOURCE, memory=1)
def nonfinite_activations(run: Run) -> Series:
    r"""Number of NaN or infinite elements of each module's output.

    $$n_m = \sum_i \mathbb{1}[\,\neg\,\mathrm{isfinite}(A_{m,i})\,]$$

    Shape (C, M): checkpoints by modules. If the writer did not count, the mean decides as for weights.
    """
    return _counted(run, "activations")


def _counted(run: Run, section: str) -> Series:
    """Return the counts of a section, filled in from its means."""
    mean = run.series(section, "mean")
    return filled(run.series(section, "nonfinite_count"), mean.mapped(lambda means: means * 0, "nonfinite_count", "elements"))
