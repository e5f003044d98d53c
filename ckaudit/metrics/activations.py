"""Activations: the outputs of modules in the forward pass."""

import re

import numpy as np
from msgspec.structs import replace

from ckaudit.contract.schema.tensor_names import block_of
from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled, ratio, together
from ckaudit.metrics.weights import magnitude
from ckaudit.run.medians import thirds_of_steps
from ckaudit.run.run import Run
from ckaudit.run.series import Series

_RESIDUAL = re.compile(r"resid|(^|[._])(h|blocks?|layers?)[._]?\d+([._]?out(put)?)?$", re.IGNORECASE)

_OUTPUT = re.compile(r"[._]?out(put)?$", re.IGNORECASE)

_BOUNDED = re.compile(r"(^|[._])(sigmoid|tanh)(_?\d+)?$", re.IGNORECASE)
"""Names of functions whose outputs lie between 0 and 1, or between -1 and 1."""


def largest_output(sizes: Series) -> float:
    """Return the largest median output of any module in the middle third of the steps; 0 if none is known there."""
    middle = sizes.values[thirds_of_steps(sizes.steps)[1]]
    known = np.where(np.isfinite(middle), middle, np.nan)[:, np.isfinite(middle).any(axis=0)]
    return float(np.nanmedian(known, axis=0).max()) if known.size else 0.0


@metric(unit="1", reads=["activations.*.mean"], source="playbook D4.5", memory=1)
def activation_mean(run: Run) -> Series:
    r"""Mean of each module's output.

    $$\mu_m = \tfrac1n \sum_i a_i$$

    Shape (C, M): checkpoints by modules. Over the finite elements; NaN if there are none.
    """
    return run.series("activations", "mean")


@metric(unit="1", reads=["activations.*.std"], source="playbook D4.5; He et al. 2015, section 2.2", memory=1)
def activation_std(run: Run) -> Series:
    r"""Population standard deviation of each module's output.

    $$\sigma_m = \sqrt{\tfrac1n \sum_i (a_i - \mu_m)^2}$$

    Shape (C, M): checkpoints by modules. Over the finite elements; NaN if there are none.
    """
    return run.series("activations", "std")


@metric(
    unit="1", reads=["activations.*.rms", activation_mean, activation_std], source="Zhang & Sennrich 2019, equation 4", memory=1
)
def activation_rms(run: Run) -> Series:
    r"""Root mean square of each module's output.

    $$\mathrm{rms}_m = \sqrt{\tfrac1n \sum_i a_i^2} = \sqrt{\mu_m^2 + \sigma_m^2}$$

    Shape (C, M): checkpoints by modules. The right-hand form is used if a writer gave only mean and standard deviation.
    """
    mean, std = together(activation_mean(run), activation_std(run))
    known = mean.recorded & std.recorded
    series = replace(mean, values=np.where(known, np.hypot(mean.values, std.values), np.nan), recorded=known)
    return filled(run.series("activations", "rms"), series)


@metric(unit="1", reads=[activation_rms], source="catalogue M21", memory=1)
def residual_rms(run: Run) -> Series:
    r"""Root mean square of the residual stream after each block.

    $$\mathrm{rms}_\ell = \sqrt{\tfrac{1}{BLd} \sum x_{\ell}^2}$$

    Shape (C, L): checkpoints by modules whose name is that of a block, such as "blocks.3" or "transformer.h.3", or contains
    "resid". Not recorded if there is no such name.
    """
    return activation_rms(run).only(_is_of_stream)


@metric(unit="1", reads=["activations.*.p50", "residual_rms_p50"], source="catalogue M21", memory=1)
def residual_rms_p50(run: Run) -> Series:
    r"""Size of a typical token in the residual stream after each block.

    $$\mathrm{median}_{t}\ \sqrt{\tfrac1d \sum_j x_{t,j}^2}$$

    Shape (T, L): checkpoints and vital signs by modules whose name is that of a block. Not recorded if there is no such name.
    """
    return _of_stream(run, "p50", "residual_rms_p50")


@metric(unit="1", reads=["activations.*.p99", "residual_rms_p99"], source="catalogue M21", memory=1)
def residual_rms_p99(run: Run) -> Series:
    r"""Size of a large token in the residual stream after each block: the 99th percentile over tokens.

    $$P_{99,t}\ \sqrt{\tfrac1d \sum_j x_{t,j}^2}$$

    Shape (T, L): as `residual_rms_p50`.
    """
    return _of_stream(run, "p99", "residual_rms_p99")


def _is_of_stream(name: str) -> bool:
    """Tell whether a module's name is that of a block or of the residual stream, and not of a numbered part of a block."""
    return _RESIDUAL.search(name) is not None and block_of(name) in (None, _OUTPUT.sub("", name))


def _of_stream(run: Run, field: str, scalar: str) -> Series:
    seen = run.series("activations", field).only(_is_of_stream)
    return filled(seen, run.scalar(scalar))


@metric(unit="1", reads=["activations.*.mean_abs"], source="F5", memory=1)
def activation_mean_abs(run: Run) -> Series:
    r"""Mean absolute value of each module's output.

    $$\bar A_m = \tfrac{1}{BLd} \sum_{b,l,j} |A_{b,l,j}|$$

    Shape (C, M): checkpoints by modules. Mean and standard deviation do not determine it, so only recorded values count.
    """
    return run.series("activations", "mean_abs")


@metric(unit="1", reads=["activations.*.min", "activations.*.max"], source="playbook D4.5; Sun et al. 2024", memory=1)
def activation_max_abs(run: Run) -> Series:
    r"""Largest magnitude in each module's output.

    $$\max_i |a_i| = \max(|\min_i a_i|, |\max_i a_i|)$$

    Shape (C, M): checkpoints by modules. Not recorded if minimum or maximum is missing; NaN if either is NaN.
    """
    return magnitude(run.series("activations", "min"), run.series("activations", "max"))


@metric(
    unit="1",
    reads=[activation_mean, activation_std, "activations.*.min", "activations.*.max"],
    source="Bhatia & Davis 2000, theorem 1",
    memory=1,
)
def activation_saturation(run: Run) -> Series:
    r"""How close each module's outputs are to taking only their two extreme values.

    $$s_m = \frac{\sigma_m^2}{(\mu_m - \min a)(\max a - \mu_m)} \in [0, 1]$$

    Shape (C, M): checkpoints by modules; 1 if every output is the minimum or the maximum. For a bounded function that is
    saturation. If the extremes are not recorded, modules named sigmoid or tanh take those of the function. Not recorded if all
    outputs are equal; NaN if an input is not finite.
    """
    mean, std = together(activation_mean(run), activation_std(run))
    lows, highs = _ends_by_name(mean)
    low, high = together(filled(run.series("activations", "min"), lows), filled(run.series("activations", "max"), highs))
    (low, mean), (high, std) = together(low, mean), together(high, std)
    known = low.recorded & high.recorded & mean.recorded & std.recorded
    with np.errstate(all="ignore"):
        room = (mean.values - low.values) * (high.values - mean.values)
        known &= ~(room <= 0)
        values = np.where(known & np.isfinite(room), np.square(std.values) / room, np.nan)
    return replace(mean, values=values, recorded=known)


def _ends_by_name(mean: Series) -> tuple[Series, Series]:
    """Return the smallest and the largest possible output of the modules that are named sigmoid or tanh."""
    bounded = mean.only(lambda name: _BOUNDED.search(name) is not None)
    lowest = np.array([0.0 if "sigmoid" in name.lower() else -1.0 for name in bounded.labels])
    low = replace(bounded, values=np.where(bounded.recorded, lowest, np.nan))
    return low, replace(bounded, values=np.where(bounded.recorded, 1.0, np.nan))


@metric(unit="1", reads=["activations.*.sparsity"], source="playbook, analysis contract", memory=1)
def activation_sparsity(run: Run) -> Series:
    r"""Share of exact zeros in each module's output.

    $$z_m = \tfrac1n \sum_i \mathbb{1}[\,a_i = 0\,]$$

    Shape (C, M): checkpoints by modules, 0 to 1. After a smooth nonlinearity such as GELU it is near 0 however few units are
    active.
    """
    return run.series("activations", "sparsity")


@metric(unit="%", reads=["activations.*.outlier_rate", "activation_outlier_rate"], source="catalogue M22", memory=1)
def activation_outlier_rate(run: Run) -> Series:
    r"""Share of each module's output that lies far outside its spread.

    $$\tfrac{100}{n} \sum_i \mathbb{1}[\,|a_i - \mu| > 6\sigma\,]$$

    Shape (T, M): checkpoints by modules. If a module was not counted, the logged rate of its name counts, with the trainer's own
    number of deviations.
    """
    counted = run.series("activations", "outlier_rate").mapped(lambda share: 100 * share, "activation_outlier_rate", "%")
    return filled(counted, run.scalar("activation_outlier_rate"))


@metric(unit="units", reads=["activations.*.dead_units"], source="F8", memory=1)
def dead_units(run: Run) -> Series:
    r"""Units of each module that stay silent over the whole batch.

    $$\sum_j \mathbb{1}[\,\max_{b,l} |H_{b,l,j}| < 10^{-3}\,]$$

    Shape (C, M): checkpoints by modules. Not recorded if units were not counted.
    """
    return run.series("activations", "dead_units")


@metric(unit="1", reads=["activations.*.dead_units", "activations.*.units", "dead_unit_fraction"], source="F8", memory=1)
def dead_unit_fraction(run: Run) -> Series:
    r"""Share of each module's units that stay silent over the whole batch.

    $$d_m = \tfrac{1}{d} \sum_j \mathbb{1}[\,\max_{b,l} |H_{b,l,j}| < 10^{-3}\,]$$

    Shape (T, M): checkpoints and vital signs by modules, 0 to 1. Not recorded if units were not counted.
    """
    counted = ratio(run.series("activations", "dead_units"), run.series("activations", "units"))
    return filled(counted, run.scalar("dead_unit_fraction"))
