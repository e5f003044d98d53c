"""Activations: the moments of a module's output against each other."""

import math
from collections.abc import Iterator

from ckaudit.contract import contradictions as kinds
from ckaudit.contract.checks import Subject, check
from ckaudit.contract.schema.report import Finding


@check(
    kinds.RMS_AND_MOMENTS,
    kinds.MEAN_ABS_RANGE,
    reads=tuple(f"activations.*.{name}" for name in ("mean", "std", "rms", "mean_abs")),
)
def root_mean_square(subject: Subject, *, precision: float = 2e-2) -> Iterator[Finding]:
    r"""|mean| <= mean_abs <= rms, and the mean square is the square of the mean plus the variance.

    $$\text{rms}^2 = \mu^2 + \sigma^2$$

    Args:
        subject: The checkpoint.
        precision: Relative error: three numbers of bfloat16 at 0.4 %, and sums of float32.
    """
    table = subject.table("activations")
    for name, mean, std, rms in table.rows("mean", "std", "rms"):
        full = math.hypot(mean, std)
        if abs(rms - full) > precision * full:
            yield subject.find(kinds.RMS_AND_MOMENTS, ("activations", name, "rms"), f"{full:.6g}, by mean and std", rms)
    least, most = table.numbers("mean", 0.0), table.numbers("rms", math.inf)
    for name, low, value, high in zip(table.names, least, table.numbers("mean_abs", math.nan), most, strict=True):
        if value < abs(low) * (1 - precision) or value > high * (1 + precision):
            expected = f"between |mean| {abs(low):.6g} and rms {high:.6g}"
            yield subject.find(kinds.MEAN_ABS_RANGE, ("activations", name, "mean_abs"), expected, value)


@check(kinds.P50_ABOVE_P99, reads=("activations.*.p50", "activations.*.p99"))
def percentiles(subject: Subject, *, rounding: float = 1e-2) -> Iterator[Finding]:
    """The median is at most the 99th percentile.

    Args:
        subject: The checkpoint.
        rounding: Relative error of numbers with four digits.
    """
    for name, median, high in subject.table("activations").rows("p50", "p99"):
        if median > high * (1 + rounding):
            yield subject.find(kinds.P50_ABOVE_P99, ("activations", name, "p50"), f"at most p99 {high:.6g}", median)


@check(
    kinds.DEAD_ABOVE_UNITS,
    kinds.UNITS_AND_SHAPE,
    kinds.NONFINITE_ABOVE_NUMEL,
    kinds.SAMPLED_ABOVE_NUMEL,
    reads=tuple(f"activations.*.{name}" for name in ("dead_units", "units", "shape", "nonfinite_count", "sampled")),
)
def units(subject: Subject) -> Iterator[Finding]:
    """Dead units are some of all units, which are the last size of the shape."""
    table = subject.table("activations")
    for name, dead, count in table.rows("dead_units", "units"):
        if dead > count:
            yield subject.find(kinds.DEAD_ABOVE_UNITS, ("activations", name, "dead_units"), f"at most units {count}", dead)
    for name, count, shape in table.rows("units", "shape"):
        if shape and shape[-1] != count:
            yield subject.find(kinds.UNITS_AND_SHAPE, ("activations", name, "units"), f"{shape[-1]}, the last of {shape}", count)
    for name, count, shape in table.rows("nonfinite_count", "shape"):
        if count > math.prod(shape):
            place = ("activations", name, "nonfinite_count")
            yield subject.find(kinds.NONFINITE_ABOVE_NUMEL, place, f"at most {math.prod(shape)} elements", count)
    for name, count, shape in table.rows("sampled", "shape"):
        if count > math.prod(shape):
            place = ("activations", name, "sampled")
            yield subject.find(kinds.SAMPLED_ABOVE_NUMEL, place, f"at most {math.prod(shape)} elements", count)
