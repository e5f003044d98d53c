"""The statistics of what one module puts out."""

import math

import numpy as np
from msgspec import UNSET

from ckaudit.contract.behaviour import ActivationStats
from ckaudit.recorder.arrays import Array, dtype_name, flat, library, row_norms, to_numpy
from ckaudit.recorder.digits import shortest
from ckaudit.recorder.spread import quantiles_of
from ckaudit.recorder.sweep import measure


def activation_stats(
    output: Array, *, count_dead: bool = False, dead_below: float = 1e-3, outlier: float = 6.0
) -> ActivationStats:
    r"""Return the statistics of one module's output, shape (..., units).

    `p50` and `p99` are over tokens, of the root mean square of a token's vector. A unit is dead where
    $\max_{b,l} |H_{b,l,j}| < 10^{-3}$ (F8); an outlier lies beyond six standard deviations of the mean (M22).
    All but `nonfinite_count` are those of the finite elements.

    Args:
        output: What the module put out.
        count_dead: Whether its last dimension are hidden units, that can be dead.
        dead_below: Largest magnitude of a dead unit, from F8.
        outlier: Distance of an outlier in standard deviations, the k of M22.
    """
    values = flat(output)
    measured = measure([output])[0]
    found = measured.moments
    stats = ActivationStats(shape=list(output.shape), dtype=dtype_name(output), nonfinite_count=found.nonfinite)
    if not found.numel:
        return stats
    stats.mean, stats.std = shortest(found.mean), shortest(found.std)
    stats.min, stats.max = shortest(found.min), shortest(found.max)
    stats.rms, stats.mean_abs = shortest(_rms(found.m2, found.mean, found.finite)), shortest(found.mean_abs)
    stats.sparsity = shortest(found.zeros / found.numel)
    far = abs(values - found.mean) > outlier * found.std
    if found.nonfinite:
        far = far & library(values).isfinite(values)
    stats.outlier_rate = shortest(int(far.sum()) / max(found.finite, 1))
    stats.histogram = measured.histogram or UNSET
    if output.ndim:
        stats.p50, stats.p99 = (shortest(value) for value in _token_rms(values, output.shape[-1]))
        stats.units = output.shape[-1]
    # A convolution's last dimension is a place, not a unit.
    if count_dead and 2 <= output.ndim <= 3:
        stats.dead_units = int(dead_units(values.reshape(-1, output.shape[-1]), dead_below=dead_below))
    return stats


def dead_units(tokens: Array, *, dead_below: float = 1e-3) -> Array:
    """Return how many units no token moves beyond `dead_below` (F8), from values of shape (tokens, units)."""
    return (library(tokens).amax(abs(tokens), 0) < dead_below).sum()


def _rms(m2: float, mean: float, count: int) -> float:
    return math.sqrt(m2 / count + mean * mean) if count else math.nan


def _token_rms(values: Array, units: int) -> list[float]:
    norms = row_norms(values.reshape(-1, units)) / math.sqrt(units)
    ordered = np.sort(to_numpy(norms[library(norms).isfinite(norms)]))
    return quantiles_of([ordered], (50, 99))[0]
