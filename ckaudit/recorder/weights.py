"""The statistics of one weight tensor after the update."""

import math
from typing import Literal

from msgspec import UNSET

from ckaudit.contract.tensors import WeightStats
from ckaudit.recorder.arrays import Array, bytes_hash, dense, double, dtype_name, library
from ckaudit.recorder.digits import shortest
from ckaudit.recorder.grids import matrix_grid
from ckaudit.recorder.sweep import Measured, measure


def weight_stats(
    tensor: Array,
    *,
    measured: Measured | None = None,
    grid: Literal["nested", "q8"] | None = None,
    spectral: bool = False,
    exact: bool = False,
) -> WeightStats:
    """Return the statistics of one weight tensor; mean, spread and extremes are those of its finite elements.

    Args:
        tensor: The weights, of any shape and type.
        measured: What a sweep over many tensors told of this one; None: it is measured now.
        grid: How to write its sampled elements; None leaves them out.
        spectral: Whether to measure its largest singular value.
        exact: Whether to hash its bytes.
    """
    dtype, tensor = dtype_name(tensor), dense(tensor)
    measured = measured or measure([tensor])[0]
    found = measured.moments
    facts = WeightStats(shape=list(tensor.shape), dtype=dtype, numel=found.numel, nonfinite_count=found.nonfinite)
    if not found.numel:
        return facts
    facts.frobenius_norm, facts.mean, facts.std, facts.min, facts.max, _ = measured.numbers
    facts.percentiles = measured.percentiles
    facts.sampled = UNSET if measured.sampled is None else measured.sampled
    facts.histogram = measured.histogram or UNSET
    facts.sampled_grid_32x32 = (matrix_grid(tensor, grid) or UNSET) if grid else UNSET
    facts.spectral_norm = shortest(spectral_norm(tensor)) if spectral and tensor.ndim >= 2 else UNSET
    facts.hash = bytes_hash(tensor) if exact else UNSET
    return facts


def spectral_norm(tensor: Array, *, rounds: int = 100, tolerance: float = 1e-7) -> float:
    r"""Return the largest singular value of a matrix, by power iteration in float64 (F6, F7).

    $$v \leftarrow \frac{W^\top W v}{\lVert W^\top W v\rVert}, \qquad \sigma_1 \approx \lVert W v\rVert$$

    It rises towards the truth, and stops where a round adds less than `tolerance` of it. The start is the same each time,
    so no random number is drawn. A tensor of more dimensions is seen as (first, all others); one that is not finite has NaN.
    """
    lib, matrix = library(tensor), double(dense(tensor)).reshape(tensor.shape[0], -1)
    if not bool(lib.isfinite(matrix).all()):
        return math.nan
    vector = lib.sin(lib.ones_like(matrix[0]).cumsum(0))
    sigma = 0.0
    for _ in range(rounds):
        image = matrix @ (vector / lib.linalg.norm(vector))
        before, sigma = sigma, float(lib.linalg.norm(image))
        if sigma - before <= tolerance * sigma:
            break
        vector = matrix.T @ image
    return sigma
