"""Number of NaN or infinite elements of each tensor."""

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled
from ckaudit.run.run import Run
from ckaudit.run.series import Series

SOURCE = "catalogue M60"

ELEMENTS = {"weights": ("mean", "min", "max"), "activations": ("mean",)}
"""Statistics of each section that are finite only if the elements are."""

OTHERS = {"weights": ("std", "frobenius_norm"), "activations": ("min", "max", "std", "rms")}
"""Statistics that a NaN among the elements makes NaN. Squares of large elements overflow, masked scores are infinite."""


@metric(
    unit="elements",
    reads=[
        "weights.*.nonfinite_count",
        "weights.*.mean",
        "weights.*.min",
        "weights.*.max",
        "weights.*.std",
        "weights.*.frobenius_norm",
    ],
    source=SOURCE,
    memory=1,
)
def nonfinite_weights(run: Run) -> Series:
    r"""Number of NaN or infinite elements of each weight tensor.

    $$n_p = \sum_i \mathbb{1}[\,\neg\,\mathrm{isfinite}(W_{p,i})\,]$$

    Shape (C, P): checkpoints by tensors. If the writer did not count, finite statistics give 0. A mean, smallest or largest
    element that is not finite gives NaN, and so does a deviation or norm that is NaN: there are some, but nobody knows how many.
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


@metric(
    unit="elements",
    reads=[
        "activations.*.nonfinite_count",
        "activations.*.mean",
        "activations.*.min",
        "activations.*.max",
        "activations.*.std",
        "activations.*.rms",
    ],
    source=SOURCE,
    memory=1,
)
def nonfinite_activations(run: Run) -> Series:
    r"""Number of NaN or infinite elements of each module's output.

    $$n_m = \sum_i \mathbb{1}[\,\neg\,\mathrm{isfinite}(A_{m,i})\,]$$

    Shape (C, M): checkpoints by modules. If the writer did not count, finite statistics give 0; a mean that is not
    finite, or any statistic that is NaN, gives NaN. An infinite extreme does not, as that of masked scores.
    """
    return _counted(run, "activations")


def _counted(run: Run, section: str) -> Series:
    """Return the counts of a section, filled in from its other statistics."""
    counts = run.series(section, "nonfinite_count")
    of_elements, others = ([run.series(section, field) for field in fields[section]] for fields in (ELEMENTS, OTHERS))
    for series, broken in [
        *((series, series.nonfinite) for series in of_elements),
        *((series, series.recorded & np.isnan(series.values)) for series in others),
    ]:
        if broken.any():
            counts = filled(counts, replace(series, values=np.full(series.values.shape, np.nan), recorded=broken))
    for series in (*of_elements, *others):
        counts = filled(counts, series.mapped(np.zeros_like, series.name, series.unit))
    return replace(counts, name="nonfinite_count", unit="elements")
