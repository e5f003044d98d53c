"""The largest singular value of chosen weights, each found from where it was found last."""

import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from ckaudit.recorder.stats.arrays import Array, dense, double, library


class SpectralNorms:
    """Measures weights whose names fit a pattern, and keeps the direction of each.

    An update turns a direction a little, so that a few rounds find it again where the first time needs dozens.

    Args:
        patterns: Glob patterns of names.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = patterns
        self._directions: dict[str, Array] = {}

    def measure(self, tensors: Mapping[str, Array]) -> dict[str, float]:
        """Return the largest singular value of every chosen matrix, NaN of one that is not finite."""
        found = {}
        for name, tensor in tensors.items():
            if tensor.ndim >= 2 and math.prod(tensor.shape) and any(fnmatchcase(name, pattern) for pattern in self._patterns):
                found[name], self._directions[name] = spectral_norm(tensor, start=self._directions.get(name))
        return found


def spectral_norm(
    tensor: Array, *, start: Array | None = None, rounds: int = 100, tolerance: float = 1e-7, mixed: float = 1e-2
) -> tuple[float, Array]:
    r"""Return the largest singular value of a matrix and its direction, by power iteration in float64 (F6, F7).

    $$v \leftarrow \frac{W^\top W v}{\lVert W^\top W v\rVert}, \qquad \sigma_1 \approx \lVert W v\rVert$$

    It rises towards the truth, and stops where a round adds less than `tolerance` of it. No random number is drawn. A
    tensor of more dimensions is seen as (first, all others); one that is not finite has NaN, and no direction.

    Args:
        tensor: The matrix.
        start: The direction found before.
        rounds: Most rounds.
        tolerance: Relative growth in a round that is worth no further one.
        mixed: Part of every other direction in the start: the largest one may have become another.
    """
    lib, matrix = library(tensor), double(dense(tensor)).reshape(tensor.shape[0], -1)
    if not bool(lib.isfinite(matrix).all()):
        return math.nan, start
    vector = lib.sin(lib.ones_like(matrix[0]).cumsum(0))
    if start is not None and start.shape == vector.shape:
        vector = start + mixed * vector / lib.linalg.norm(vector)
    sigma = 0.0
    for _ in range(rounds):
        image = matrix @ (vector / lib.linalg.norm(vector))
        before, sigma = sigma, float(lib.linalg.norm(image))
        if sigma - before <= tolerance * sigma:
            break
        vector = matrix.T @ image
    return sigma, vector / lib.linalg.norm(vector)
