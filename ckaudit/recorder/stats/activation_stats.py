"""Statistics of module outputs: noted in the hook, computed for all modules in one pass."""

import math
from collections.abc import Sequence

import numpy as np
from msgspec import UNSET, Struct
from msgspec.structs import replace

from ckaudit.contract.schema.checkpoint import ActivationStats, Histogram
from ckaudit.contract.schema.numbers import Number
from ckaudit.recorder.stats.arrays import (
    Array,
    all_to_floats,
    all_to_numpy,
    dense_as_numpy,
    dtype_name,
    extremes,
    flat,
    is_on_accelerator,
    library,
    row_norms,
    to_float64,
)
from ckaudit.recorder.stats.batched_stats import SweptTensor, sweep
from ckaudit.recorder.stats.float32_rounding import shortest_of
from ckaudit.recorder.stats.quantiles import quantiles_of, spread_of

NUMBERS = ("low", "high", "nonfinite", "dead")  # statistics of a module's output
MAX_SAMPLED_ELEMENTS, MIN_TOKENS = 2**13, 64  # elements sampled of one output, and minimum number of tokens for a percentile


class ModuleOutput(Struct, frozen=True):
    """One module's output, kept until all are measured; its numbers are still on the device.

    Attributes:
        shape: Shape of the whole output.
        dtype: Dtype of its elements.
        tokens: A copy of some or all of its tokens, shape (tokens, units).
        low: Smallest of all finite elements.
        high: Largest of all finite elements.
        nonfinite: Number of elements that are NaN or infinite.
        dead: Dead units over all tokens, if they are counted.
    """

    shape: tuple[int, ...]
    dtype: str
    tokens: Array
    low: Array
    high: Array
    nonfinite: Array
    dead: Array | None


def note(
    output: Array, *, count_dead: bool = False, looked_at: int = MAX_SAMPLED_ELEMENTS, fewest: int = MIN_TOKENS
) -> ModuleOutput:
    """Take extremes and a sample of a module's output, shape (..., units), before it is freed.

    Args:
        output: The output of the module.
        count_dead: Whether its last dimension is hidden units, which can be dead.
        looked_at: Maximum number of elements to copy; of a larger output only every n-th token is copied.
        fewest: Minimum number of tokens to copy, however many units they have.
    """
    values = dense_as_numpy(output)
    tokens = values.reshape(-1, values.shape[-1] if values.ndim else 1)
    stride = _stride(tokens.shape, values.shape[-2] if values.ndim > 1 else 1, max(looked_at, fewest * tokens.shape[-1]))
    copied = tokens[::stride]
    # The last dimension of a convolution is a position, not units.
    is_hidden = count_dead and 2 <= output.ndim <= 3 and math.prod(tokens.shape) > 0 and len(tokens) >= FEWEST_ROWS
    nonfinite, low, high = _extremes(values) if math.prod(tokens.shape) else (0, math.nan, math.nan)
    return ModuleOutput(
        shape=tuple(output.shape),
        dtype=dtype_name(output),
        tokens=copied.copy() if library(copied) is np else copied.clone(),
        low=low,
        high=high,
        nonfinite=nonfinite,
        dead=dead_units(tokens) if is_hidden else None,
    )


def activation_stats(outputs: Sequence[ModuleOutput]) -> list[ActivationStats]:
    r"""Return the statistics of the outputs.

    `p50` and `p99` are over tokens, of the root mean square of a token's vector. A unit is dead if
    $\max_{b,l} |H_{b,l,j}| < 10^{-3}$ (F8); an outlier is more than six standard deviations from the mean (M22). Extremes, dead
    units and `nonfinite_count` are over all elements, the others over the finite elements of the sampled tokens.
    """
    if not outputs:
        return []
    swept = sweep([output.tokens for output in outputs], exact_up_to=2 * MAX_SAMPLED_ELEMENTS, magnitudes=True)
    _, bins = spread_of([measured.sample for measured in swept], ())
    spreads = quantiles_of(_token_rms([output.tokens for output in outputs]), (50, 99))
    outliers = _outlier_rates([output.tokens for output in outputs], swept)
    seen = _as_floats(outputs)
    numbers = [
        _numbers(output, measured, outlier_rate, spread)
        for output, measured, outlier_rate, spread in zip(seen, swept, outliers, spreads, strict=True)
    ]
    written = iter(shortest_of([number for unwritten in numbers for number in unwritten]))
    return [
        _stats(output, measured, histogram, [next(written) for _ in unwritten])
        for output, measured, histogram, unwritten in zip(seen, swept, bins, numbers, strict=True)
    ]


def _as_floats(outputs: Sequence[ModuleOutput]) -> list[ModuleOutput]:
    """Return the outputs with their numbers fetched to CPU memory."""
    names = [[name for name in NUMBERS if getattr(output, name) is not None] for output in outputs]
    floats = iter(all_to_floats([getattr(one, name) for one, of_one in zip(outputs, names, strict=True) for name in of_one]))
    return [replace(one, **{name: next(floats) for name in of_one}) for one, of_one in zip(outputs, names, strict=True)]


FEWEST_ROWS = 16
"""Tokens among which a unit that fires for one in five is active at least once, except 3 in 100 such units. A unit that is silent
for fewer tokens may be alive."""


def dead_units(tokens: Array, *, dead_below: float = 1e-3, first: int = 64) -> Array:
    """Return the number of units that stay below `dead_below` for all tokens (F8), from values of shape (tokens, units).

    On a CPU the first `first` tokens are checked first: units that are active there need no further check.
    """
    if not is_on_accelerator(tokens) and tokens.shape[0] > first:
        tokens = tokens[:, _are_silent(tokens[:: tokens.shape[0] // first], dead_below)]
    return _are_silent(tokens, dead_below).sum()


def _are_silent(tokens: Array, dead_below: float) -> Array:
    lib = library(tokens)
    return (lib.amax(tokens, 0) < dead_below) & (lib.amin(tokens, 0) > -dead_below)


def _stride(shape: Sequence[int], length: int, max_elements: int) -> int:
    """Return the stride over tokens; it shares no factor with the sequence length, or the same positions would recur."""
    stride = max(1, -(-math.prod(shape) // max_elements))
    while 1 < stride < shape[0] and math.gcd(stride, length) > 1:
        stride += 1
    return stride


def _extremes(values: Array) -> tuple[Array, Array, Array]:
    """Return how many elements are not finite, and the smallest and the largest of the others; NaN if there are none."""
    if not is_on_accelerator(values):
        low, high = extremes(values)
        if math.isfinite(low) and math.isfinite(high):
            return 0, low, high
        finite = values[library(values).isfinite(values)]
        empty = not finite.shape[0]
        return math.prod(values.shape) - finite.shape[0], *((math.nan, math.nan) if empty else extremes(finite))
    low, high = (values.nan_to_num(nan=end, posinf=end, neginf=end) for end in (math.inf, -math.inf))
    return (values - values != 0).sum(), low.amin(), high.amax()


def _token_rms(tokens: Sequence[Array]) -> list[Array]:
    """Return the root mean square of each token, without tokens for which it is not finite."""
    norms = all_to_numpy([row_norms(flat(activation).reshape(activation.shape)) for activation in tokens])
    rms = [norm / math.sqrt(max(activation.shape[-1], 1)) for norm, activation in zip(norms, tokens, strict=True)]
    return [of_tokens[np.isfinite(of_tokens)] for of_tokens in rms]


def _numbers(output: ModuleOutput, swept: SweptTensor, outlier_rate: float, spread: Sequence[float]) -> list[float]:
    """Return extremes, mean, deviation, rms, mean magnitude, sparsity, outlier rate and the two percentiles over tokens."""
    moments = swept.moments
    if not moments.numel:
        return []
    rms = math.sqrt(moments.m2 / moments.finite + moments.mean**2) if moments.finite else math.nan
    rest = (moments.mean, moments.std, rms, moments.mean_abs, moments.zeros / moments.numel, outlier_rate)
    return [float(output.low), float(output.high), *rest, *spread]


def _outlier_rates(tokens: Sequence[Array], swept: Sequence[SweptTensor], *, distance: float = 6.0) -> list[float]:
    """Return the share of finite elements that are further from the mean than `distance` deviations, the k of M22."""
    counts: dict[int, Array] = {}
    for place, (values, moments) in enumerate(zip(tokens, (measured.moments for measured in swept), strict=True)):
        reach = distance * moments.std
        if moments.finite and max(moments.max - moments.mean, moments.mean - moments.min) > reach:
            elements = flat(values)
            far = abs(to_float64(elements) - moments.mean) > reach
            counts[place] = (far & library(elements).isfinite(elements)).sum()
    outliers = dict(zip(counts, all_to_floats([*counts.values()]), strict=True))
    return [outliers.get(place, 0) / max(measured.moments.finite, 1) for place, measured in enumerate(swept)]


def _stats(output: ModuleOutput, swept: SweptTensor, histogram: Histogram | None, numbers: Sequence[Number]) -> ActivationStats:
    stats = ActivationStats(shape=list(output.shape), dtype=output.dtype, nonfinite_count=int(output.nonfinite))
    if not numbers:
        return stats
    stats.min, stats.max, stats.mean, stats.std, stats.rms, stats.mean_abs, stats.sparsity, stats.outlier_rate, *rest = numbers
    stats.histogram = histogram or UNSET
    stats.sampled = UNSET if swept.moments.numel == math.prod(output.shape) else swept.moments.numel
    if output.shape:
        stats.p50, stats.p99 = rest
        stats.units = output.shape[-1]
    stats.dead_units = UNSET if output.dead is None else int(output.dead)
    return stats
