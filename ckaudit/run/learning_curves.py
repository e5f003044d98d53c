"""How much better a rise explains a short curve than the law of learning curves does.

The loss of a model falls to a floor as a power of time or exponentially (Hestness et al. 2017, Kaplan et al. 2020). That takes
four numbers where a free falling curve takes one for every level, so that a few points tell more. The noise is a share of the
level.
"""

import math
from functools import cache

import numpy as np

from ckaudit.run.series import Floats

PACES = np.geomspace(0.02, 1.0, 8)
"""Times, as shares of the log, in which an exponential falls by 1/e, or in which a power of time begins to bend."""

POWERS = (0.3, 0.6, 1.2)
"""Exponents: those of the fits of public runs lie between."""

NOISES = (0.005, 0.12)
"""Noise as a share of the level, least and most; more than the most speaks for the story with the smaller rest."""

RIDGE = 1e-9
"""Added to the diagonal of the normal equations: of few points two columns may be the same."""


def rise_ratio(values: Floats) -> float:
    """Return the log of the likelihood ratio of a rise anywhere in a curve over a law of learning all along.

    With a rise the curve follows such a law up to a turn, and from there on it stands higher or climbs in a straight line.

    Args:
        values: Positive, in the order of steps, shape (N,), five at least.
    """
    falls, rises = _designs(len(values))
    scaled = values / values.mean()
    best, usual = (_log_likelihood(_least_squares(designs, scaled), len(values)) for designs in (rises, falls))
    return best - usual


@cache
def _designs(count: int) -> tuple[Floats, Floats]:
    """Return the columns of falling curves, shape (F, N, 2), and of those with a rise of each place and kind, shape (R, N, 3)."""
    time, ones = np.linspace(0, 1, count), np.ones(count)
    laws = [np.exp(-time / pace) for pace in PACES] + [(1 + time / pace) ** -power for pace in PACES for power in POWERS]
    rises = []
    for onset in range(1, count - 1):
        jump, climb = np.zeros(count), np.zeros(count)
        jump[onset:], climb[onset:] = 1, np.linspace(0, 1, count - onset + 1)[1:]
        stopped = [np.append(law[:onset], np.full(count - onset, law[onset - 1])) for law in laws]
        rises += [np.stack([ones, law, rise], axis=1) for law in stopped for rise in (jump, climb)]
    return np.array([np.stack([ones, law], axis=1) for law in laws]), np.array(rises)


def _least_squares(designs: Floats, values: Floats) -> float:
    """Return the least sum of squared relative differences of all designs that fall and rise, or of a constant.

    Args:
        designs: Columns: the floor, what falls, what rises; shape (K, N, 2 or 3).
        values: Positive, shape (N,).
    """
    weighted = designs / values[:, None]
    products = weighted.transpose(0, 2, 1) @ weighted + RIDGE * np.eye(designs.shape[2])
    found = np.linalg.solve(products, weighted.sum(axis=1)[..., None])
    squares = np.square((weighted @ found)[..., 0] - 1).sum(axis=1)
    constant = np.square(np.square(1 / values).sum() ** -1 * (1 / values).sum() / values - 1).sum()
    return float(min(squares[(found[:, 1:, 0] >= 0).all(axis=1)].min(initial=math.inf), constant))


def _log_likelihood(squares: float, count: int) -> float:
    noise = min(NOISES[1], max(NOISES[0], math.sqrt(squares / count)))
    return -count * math.log(noise) - squares / (2 * noise**2)
