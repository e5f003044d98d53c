"""Weights after the update, and how far the update moved them."""

import math
from collections.abc import Mapping
from typing import Literal

from msgspec import UNSET, UnsetType

from ckaudit.contract.numbers import Number
from ckaudit.contract.tensors import DeltaStats, WeightStats
from ckaudit.recorder.arrays import Array, bytes_hash, dense, double, dtype_name, flat, library, norm
from ckaudit.recorder.reference import Reference
from ckaudit.recorder.tensors import histogram, matrix_grid, moments, percentiles, sample, shortest


def weight_stats(
    tensor: Array, *, grid: Literal["nested", "q8"] | None = None, spectral: bool = False, exact: bool = False
) -> WeightStats:
    """Return the statistics of one weight tensor; mean, spread and extremes are those of its finite elements.

    Args:
        tensor: The weights, of any shape and type.
        grid: How to write its sampled elements; None leaves them out.
        spectral: Whether to measure its largest singular value.
        exact: Whether to hash its bytes.
    """
    dtype, tensor = dtype_name(tensor), dense(tensor)
    values = flat(tensor)
    found = moments(values)
    facts = WeightStats(shape=list(tensor.shape), dtype=dtype, numel=found.numel, nonfinite_count=found.nonfinite)
    if not found.numel:
        return facts
    ordered, sampled = sample(values, tensor.shape)
    facts.mean, facts.std = shortest(found.mean), shortest(found.std)
    facts.min, facts.max = shortest(found.min), shortest(found.max)
    facts.frobenius_norm = shortest(found.norm)
    facts.percentiles = percentiles(ordered)
    facts.sampled = UNSET if sampled is None else sampled
    facts.histogram = histogram(ordered) or UNSET
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


def copies(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Return a copy of the weights, to be compared with after the update."""
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def movement(
    tensors: Mapping[str, Array], before: Mapping[str, Array], reference: Reference | None
) -> tuple[dict[str, DeltaStats], float | None]:
    r"""Return each tensor's movement, and that of all together, $\lVert\Delta W\rVert / \lVert W\rVert$ (M11).

    Args:
        tensors: The weights after the update.
        before: Copies from before it; a tensor without one has no `norm`.
        reference: Step 0, for `moved`; without it there is none.

    Returns:
        The section by tensor, without tensors of which nothing is known, and the ratio over all copied tensors; a ratio
        to weights that are all zero is not recorded.
    """
    found, moved, size = {}, 0.0, 0.0
    for name, tensor in tensors.items():
        size_now = delta = None
        if name in before:
            size_now, delta = norm(flat(tensor)), norm(flat(tensor) - flat(before[name]))
            moved, size = moved + delta * delta, size + size_now * size_now
        since = reference.moved(name, tensor) if reference else None
        if delta is None and since is None:
            continue
        found[name] = DeltaStats(norm=_number(delta), relative=_number(_ratio(delta, size_now)), moved=_number(since))
    return found, _ratio(math.sqrt(moved), math.sqrt(size)) if before else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or whole is None or whole == 0 else part / whole


def _number(value: float | None) -> Number | UnsetType:
    return UNSET if value is None else shortest(value)
