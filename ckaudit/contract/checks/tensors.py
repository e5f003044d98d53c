"""Extremes, percentiles and moments of one tensor compared with each other."""

import math
from collections.abc import Iterator
from itertools import pairwise
from operator import le

from ckaudit.contract import contradictions as kinds
from ckaudit.contract.checks import CheckInput, check
from ckaudit.contract.schema.checkpoint import PERCENTILE_LEVELS
from ckaudit.contract.schema.report import Finding

SECTIONS = ("weights", "gradients")
_SHARES = [level / 100 for level in PERCENTILE_LEVELS]
_LEVELS = (_SHARES, [float(level) for level in PERCENTILE_LEVELS])


@check(
    kinds.MIN_ABOVE_MAX,
    kinds.PERCENTILES_DESCEND,
    kinds.PERCENTILE_OUTSIDE,
    kinds.PERCENTILES_ARE_LEVELS,
    reads=tuple(f"{section}.*.{name}" for section in SECTIONS for name in ("min", "max", "percentiles")),
)
def order(subject: CheckInput, *, rounding: float = 1e-2) -> Iterator[Finding]:
    """Percentiles ascend from minimum to maximum.

    Args:
        subject: The checkpoint.
        rounding: Relative error between a percentile and an extreme. Percentiles have four digits: two numbers rounded so differ
            by at most 1e-3 of their size.
    """
    for section in SECTIONS:
        table = subject.table(section)
        lows, highs = table.numbers("min", -math.inf), table.numbers("max", math.inf)
        if "percentiles" not in table.columns:
            for name, low, high in zip(table.names, lows, highs, strict=True):
                if low > high:
                    yield _crossed(subject, section, name, low, high)
            continue
        for name, low, values, high in zip(table.names, lows, table.columns["percentiles"], highs, strict=True):
            try:
                a, b, c, d, e, f, g = values
                if low <= a <= b <= c <= d <= e <= f <= g <= high and d not in (0.5, 50.0):
                    continue
            except TypeError:
                pass  # not recorded, or with words for non-finite numbers
            yield from _order_of(subject, section, name, low, values, high, rounding)


def _crossed(subject: CheckInput, section: str, name: str, low: float, high: float) -> Finding:
    """Return the finding on a tensor whose smallest element is above its largest."""
    return subject.find(kinds.MIN_ABOVE_MAX, (section, name, "min"), f"at most max {high:.6g}", low)


def _order_of(
    subject: CheckInput, section: str, name: str, low: float, values: list[float | str], high: float, rounding: float
) -> Iterator[Finding]:
    """Yield what is wrong with the order of one tensor's extremes and percentiles, beyond rounding.

    Args:
        subject: The checkpoint.
        section: "weights" or "gradients".
        name: The tensor.
        low: Smallest element, -inf if not recorded.
        values: The seven percentiles; UNSET if not recorded.
        high: Largest element, inf if not recorded.
        rounding: Relative error between a percentile and an extreme.
    """
    if low > high:
        yield _crossed(subject, section, name, low, high)
    place = (section, name, "percentiles")
    if values in _LEVELS:
        yield subject.find(kinds.PERCENTILES_ARE_LEVELS, place, "the elements at these levels", "the list of levels")
        return
    finite = [(index, value) for index, value in enumerate(values or ()) if isinstance(value, float)]
    for (_, before), (index, value) in pairwise(finite):
        if before > value:
            yield subject.find(kinds.PERCENTILES_DESCEND, (*place, index), f"at least {before:.6g}", value)
            break
    slack = _slack(low, high, rounding)
    for index, value in finite if low <= high else ():
        if not low - slack <= value <= high + slack:
            yield subject.find(kinds.PERCENTILE_OUTSIDE, (*place, index), f"between {low:.6g} and {high:.6g}", value)
            break


def _slack(low: float, high: float, rounding: float) -> float:
    """Return the absolute rounding error of elements between `low` and `high`."""
    return rounding * max((abs(bound) for bound in (low, high) if math.isfinite(bound)), default=0.0)


@check(
    kinds.MEAN_OUTSIDE,
    kinds.STD_ABOVE_RANGE,
    reads=tuple(f"{section}.*.{name}" for section in (*SECTIONS, "activations") for name in ("mean", "std", "min", "max")),
)
def spread(subject: CheckInput, *, rounding: float = 1e-2) -> Iterator[Finding]:
    r"""The mean lies between the extremes, and the standard deviation is at most Popoviciu's bound.

    $$\sigma \le \frac{\max - \min}{2}$$

    Args:
        subject: The checkpoint.
        rounding: Error relative to the largest element. A standard deviation from one pass of float32 sums loses half of the 24
            bits: about 3e-4 of the mean.
    """
    for section in (*SECTIONS, "activations"):
        table = subject.table(section)
        if not ({"mean", "std"} & table.columns.keys() and {"min", "max"} & table.columns.keys()):
            continue
        lows, highs = table.numbers("min", -math.inf), table.numbers("max", math.inf)
        means, stds = table.numbers("mean", math.nan), table.numbers("std", 0.0)
        for name, low, mean, high, std in zip(table.names, lows, means, highs, stds, strict=True):
            if low <= mean <= high and std + std <= high - low:
                continue
            if low <= high:
                yield from _spread_of(subject, section, name, (low, mean, high, std), rounding)


def _spread_of(
    subject: CheckInput, section: str, name: str, numbers: tuple[float, float, float, float], rounding: float
) -> Iterator[Finding]:
    """Yield what is wrong with mean and standard deviation of one tensor, beyond rounding.

    Args:
        subject: The checkpoint.
        section: The section of the tensor.
        name: The tensor or module.
        numbers: Smallest element, mean, largest element, standard deviation.
        rounding: Error relative to the largest element.
    """
    low, mean, high, std = numbers
    slack = _slack(low, high, rounding)
    if mean < low - slack or mean > high + slack:
        yield subject.find(kinds.MEAN_OUTSIDE, (section, name, "mean"), f"between {low:.6g} and {high:.6g}", mean)
    # Dividing by n - 1 increases the deviation of two elements by the root of two, that of more elements by less.
    limit = (high - low) / 2
    if std > limit * math.sqrt(2) * (1 + rounding) + slack:
        yield subject.find(kinds.STD_ABOVE_RANGE, (section, name, "std"), f"at most {limit:.6g}, half of the range", std)


@check(
    kinds.SHAPE_AND_NUMEL,
    kinds.NONFINITE_ABOVE_NUMEL,
    kinds.SAMPLED_ABOVE_NUMEL,
    reads=(
        "weights.*.shape",
        "weights.*.placement",
        *(f"{section}.*.{name}" for section in SECTIONS for name in ("numel", "nonfinite_count", "sampled")),
    ),
)
def size(subject: CheckInput) -> Iterator[Finding]:
    """The number of elements is the product of the shape, and at least the numbers of sampled and of non-finite ones."""
    weights = subject.table("weights")
    if (full := weights.complete_columns("shape", "numel")) is None or tuple(map(math.prod, full[0])) != full[1]:
        for name, shape, numel in weights.rows("shape", "numel"):
            # A rank may record the size of its shard with the shape of the whole tensor.
            if math.prod(shape) != numel and dict(weights.recorded("placement")).get(name) not in ("shard", "partial"):
                yield subject.find(
                    kinds.SHAPE_AND_NUMEL, ("weights", name, "numel"), f"{math.prod(shape)}, the product of {shape}", numel
                )
    for section in SECTIONS:
        table = subject.table(section)
        for field, kind in (("nonfinite_count", kinds.NONFINITE_ABOVE_NUMEL), ("sampled", kinds.SAMPLED_ABOVE_NUMEL)):
            if field in table.columns and not all(map(le, table.numbers(field, 0), table.numbers("numel", math.inf))):
                for name, count, numel in table.rows(field, "numel"):
                    if count > numel:
                        yield subject.find(kind, (section, name, field), f"at most numel {numel}", count)


@check(
    kinds.WORD_WITHOUT_NONFINITE,
    reads=tuple(f"{section}.*.{name}" for section in SECTIONS for name in ("min", "max", "nonfinite_count")),
)
def extremes(subject: CheckInput) -> Iterator[Finding]:
    """An extreme that is NaN or infinite needs a non-finite element, if those were counted."""
    for section in (*SECTIONS, "activations"):
        table = subject.table(section)
        for field in ("min", "max"):
            if field in table.columns and field not in table.plain:
                counted = {name for name, count in table.recorded("nonfinite_count") if count == 0}
                empty = {name for name, numel in table.recorded("numel") if numel == 0}
                for name, value in table.recorded(field):
                    if isinstance(value, str) and name in counted - empty:
                        place = (section, name, field)
                        yield subject.find(kinds.WORD_WITHOUT_NONFINITE, place, "a number: nonfinite_count is 0", value)


LARGEST = {
    "float8_e4m3fn": 448.0,
    "float8_e4m3fnuz": 240.0,
    "float8_e5m2": 57344.0,
    "float8_e5m2fnuz": 57344.0,
    "float16": 65504.0,
    "bfloat16": 3.3895e38,
    "float32": 3.4029e38,
}


@check(
    kinds.BEYOND_DTYPE,
    reads=tuple(f"{section}.*.{name}" for section in (*SECTIONS, "activations") for name in ("dtype", "min", "max")),
)
def dtype(subject: CheckInput, *, rounding: float = 1e-2) -> Iterator[Finding]:
    """No element exceeds the largest number of its type (IEEE 754; OCP 8-bit floating point, 2023).

    Args:
        subject: The checkpoint.
        rounding: Relative error of a number written with four digits.
    """
    smallest = min(LARGEST.values())
    for section in (*SECTIONS, "activations"):
        table = subject.table(section)
        for field in ("min", "max"):
            values = table.numbers(field, 0.0) if "dtype" in table.columns and field in table.columns else ()
            if values and max(abs(min(values)), abs(max(values))) > smallest:
                types = {name: str(kind).removeprefix("torch.") for name, kind in table.recorded("dtype")}
                for name, value in zip(table.names, values, strict=True):
                    limit = LARGEST.get(types.get(name, ""), math.inf)
                    if abs(value) > limit * (1 + rounding):
                        expected = f"within the {limit:.6g} of {types[name]}"
                        yield subject.find(kinds.BEYOND_DTYPE, (section, name, field), expected, value)
