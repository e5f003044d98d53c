"""What a law of learning says of a few points: whether they rise, fall or stand still.

The loss of a model falls to a floor as a power of time or exponentially (Hestness et al. 2017, Kaplan et al. 2020). Such a law
has four parameters, where a free falling curve takes one for each level, so it needs fewer points. Two hypotheses about a curve
are compared by their log likelihood ratio, each at its best fit. The noise is a share of the level and is fitted for each
hypothesis.
"""

import math
from functools import lru_cache

import numpy as np

from ckaudit.run.series import Floats

PACES = np.geomspace(0.02, 1.0, 8)
"""Shares of the log after which an exponential has fallen to 1/e, or after which a power of time begins to bend."""

POWERS = (0.3, 0.6, 1.2)
"""Exponents; fits of public runs lie between them."""

NOISES = (0.005, 0.12)
"""Smallest and largest noise, as a share of the level. Above the largest, the hypothesis with the smaller residual wins."""

RIDGE = 1e-9
"""Added to the diagonal of the normal equations, because two columns may coincide if there are few points."""


def rise_likelihood_ratio(values: Floats) -> float:
    """Return the log likelihood ratio of a rise somewhere in a curve over a law of learning throughout.

    A curve with a rise follows such a law up to a turn. From there on it stands higher or climbs in a straight line.

    Args:
        values: Positive, in the order of steps, shape (N,), five at least.
    """
    squares = min(_of_laws(_rises(len(values)), values), _of_a_level(values))
    return _log_likelihood(squares, len(values)) - _log_likelihood(_of_falls(values), len(values))


def fall_likelihood_ratio(values: Floats) -> float:
    """Return the log likelihood ratio of a law of learning over a constant level.

    Args:
        values: Positive, in the order of steps, shape (N,), five at least.

    >>> fall_likelihood_ratio(np.array([10.8, 10.9, 10.8, 10.7, 10.8])) < 2
    True
    >>> fall_likelihood_ratio(np.array([10.8, 9.0, 8.2, 7.8, 7.6])) > 9
    True
    """
    return _log_likelihood(_of_falls(values), len(values)) - _log_likelihood(_of_a_level(values), len(values))


def level_likelihood_ratio(values: Floats, *, fall: float) -> float:
    """Return the log likelihood ratio of a constant level over a fall that ends after the first quarter.

    Args:
        values: Positive, in the order of steps, shape (N,), five at least.
        fall: The fall as a share of the first level.
    """
    course = 1 - fall * np.minimum(1, np.linspace(0, 4, len(values)))
    return _log_likelihood(_of_a_level(values), len(values)) - _log_likelihood(_of_a_level(values / course), len(values))


@lru_cache(maxsize=8)
def _falls(count: int) -> Floats:
    """Return the columns of falling curves, the floor and the falling part, shape (F, N, 2)."""
    time = np.linspace(0, 1, count)
    powers = [(1 + time / pace) ** -power for pace in PACES for power in POWERS]
    laws = np.concatenate([np.exp(-time / PACES[:, None]), powers])
    return np.stack([np.ones_like(laws), laws], axis=2)


@lru_cache(maxsize=8)
def _rises(count: int) -> Floats:
    """Return the columns of falling curves with a rise of each place and kind, shape (R, N, 3)."""
    rows, onsets = np.arange(count), np.arange(1, count - 1)[:, None]
    laws = _falls(count)[:, :, 1]  # (F, N)
    stopped = np.where(rows < onsets[..., None], laws, laws[:, onsets - 1].transpose(1, 0, 2))  # (O, F, N)
    jumps = (rows >= onsets).astype(float)  # (O, N)
    climbs = jumps * (rows - onsets + 1) / (count - onsets)
    columns = np.broadcast_arrays(1.0, stopped[:, None], np.stack([jumps, climbs], axis=1)[:, :, None])
    return np.stack(columns, axis=-1).reshape(-1, count, 3)


def _of_a_level(values: Floats) -> float:
    """Return the sum of squared relative residuals of the best constant level."""
    level = (1 / values).sum() / np.square(1 / values).sum()
    return float(np.square(level / values - 1).sum())


def _of_falls(values: Floats) -> float:
    """Return the smallest sum of squared relative residuals of a law of learning or a constant level."""
    return min(_of_laws(_falls(len(values)), values), _of_a_level(values))


def _of_laws(designs: Floats, values: Floats) -> float:
    """Return the smallest sum of squared relative residuals over all designs without a negative coefficient after the first.

    Args:
        designs: Columns: the floor, the falling part, the rising part; shape (K, N, 2 or 3).
        values: Positive, shape (N,).
    """
    weighted = designs / (values / values.mean())[:, None]
    products = weighted.transpose(0, 2, 1) @ weighted
    products += RIDGE * max(1.0, float(products.max())) * np.eye(designs.shape[2])  # values may differ by powers of ten
    coefficients = np.linalg.solve(products, weighted.sum(axis=1)[..., None])
    squares = np.square((weighted @ coefficients)[..., 0] - 1).sum(axis=1)
    return float(squares[(coefficients[:, 1:, 0] >= 0).all(axis=1)].min(initial=math.inf))


def _log_likelihood(squares: float, count: int) -> float:
    noise = min(NOISES[1], max(NOISES[0], math.sqrt(squares / count)))
    return -count * math.log(noise) - squares / (2 * noise * noise)
