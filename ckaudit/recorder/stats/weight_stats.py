"""The statistics of one weight tensor after the update."""

from typing import Literal

from msgspec import UNSET

from ckaudit.contract.schema.checkpoint import WeightStats
from ckaudit.recorder.stats.arrays import Array, bytes_hash, dense, dtype_name
from ckaudit.recorder.stats.batched_stats import Measured, measure
from ckaudit.recorder.stats.float32_rounding import shortest
from ckaudit.recorder.stats.grids import matrix_grid


def weight_stats(
    tensor: Array,
    *,
    measured: Measured | None = None,
    grid: Literal["nested", "q8"] | None = None,
    spectral: float | None = None,
    exact: bool = False,
) -> WeightStats:
    """Return the statistics of one weight tensor; mean, spread and extremes are those of its finite elements.

    Args:
        tensor: The weights, of any shape and type.
        measured: What a sweep over many tensors told of this one; None: it is measured now.
        grid: How to write its sampled elements; None leaves them out.
        spectral: Its largest singular value, where that was measured.
        exact: Whether to hash its bytes.
    """
    dtype, tensor = dtype_name(tensor), dense(tensor)
    measured = measured or measure([tensor])[0]
    moments = measured.moments
    facts = WeightStats(shape=list(tensor.shape), dtype=dtype, numel=moments.numel, nonfinite_count=moments.nonfinite)
    if not moments.numel:
        return facts
    facts.frobenius_norm, facts.mean, facts.std, facts.min, facts.max, _ = measured.numbers
    facts.percentiles = measured.percentiles
    facts.sampled = UNSET if measured.sampled is None else measured.sampled
    facts.histogram = measured.histogram or UNSET
    facts.sampled_grid_32x32 = (matrix_grid(tensor, grid) or UNSET) if grid else UNSET
    facts.spectral_norm = UNSET if spectral is None else shortest(spectral)
    facts.hash = bytes_hash(tensor) if exact else UNSET
    return facts
