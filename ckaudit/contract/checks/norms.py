"""Norms of a tensor compared with its moments, its extremes and each other."""

import math
from collections.abc import Iterator, Sequence

from msgspec import UNSET

from ckaudit.contract import contradictions as kinds
from ckaudit.contract.checks import CheckInput, check
from ckaudit.contract.schema.report import Finding

NORMS = {"weights": "frobenius_norm", "gradients": "norm"}


@check(
    kinds.NORM_AND_MOMENTS,
    kinds.NORM_AND_EXTREMES,
    reads=(
        "weights.*.frobenius_norm",
        "gradients.*.norm",
        *(f"{section}.*.{name}" for section in NORMS for name in ("mean", "std", "min", "max", "numel", "nonfinite_count")),
        "weights.*.placement",
        "gradients.*.placement",
        "gradients_source",
    ),
)
def norm(subject: CheckInput, *, precision: float = 2e-2) -> Iterator[Finding]:
    r"""The sum of squares follows from size, mean and population standard deviation.

    $$\lVert w \rVert^2 = n (\mu^2 + \sigma^2)$$

    Args:
        subject: The checkpoint.
        precision: Relative error of the norm. A bfloat16 keeps 8 bits, 0.4 % of a number; the three together stay below 2 %.
    """
    for section, field in NORMS.items():
        table = subject.table(section)
        if field not in table.columns or (section == "gradients" and subject.document.gradients_source == "rescaled"):
            continue
        sizes = numels(subject, section)
        means, stds = table.numbers("mean", math.nan), table.numbers("std", math.nan)
        lows, highs = table.numbers("min", 0.0), table.numbers("max", 0.0)
        norms = table.numbers(field, math.nan)
        lower, upper = (1 - precision) ** 2, (1 + precision) ** 2
        for name, size, mean, std, length, low, high in zip(table.names, sizes, means, stds, norms, lows, highs, strict=True):
            square = length * length
            if square * lower <= size * (mean * mean + std * std) <= square * upper and -length <= low and high <= length:
                continue
            # A norm without moments and extremes cannot be compared.
            is_alone = mean + std != mean + std and not low and not high
            if length == length and not is_alone and _whole(subject, section, name):  # noqa: PLR0124  not NaN
                yield from _norm_of(subject, (section, name, field), (size, mean, std, low, high), length, precision)


def numels(subject: CheckInput, section: str) -> Sequence[float]:
    """Return the number of elements of each tensor of a section, NaN if unknown."""
    table, weights = subject.table(section), subject.table("weights")
    if "numel" in table.plain:
        return table.numbers("numel", math.nan)
    if weights.names == table.names and "numel" in weights.plain:
        return weights.numbers("numel", math.nan)
    known = {name: math.prod(shape) for name, shape in weights.recorded("shape")}
    known |= dict(weights.recorded("numel")) | dict(table.recorded("numel"))
    return [known.get(name, math.nan) for name in table.names]


def _whole(subject: CheckInput, section: str, name: str) -> bool:
    """Tell whether all statistics of an entry cover the same elements: all finite, none on another rank."""
    entry = subject.entries(section)[name]
    return entry.nonfinite_count in (UNSET, 0) and entry.placement in (UNSET, "replicated")


def _norm_of(
    subject: CheckInput, place: tuple[str, ...], numbers: tuple[float, ...], length: float, precision: float
) -> Iterator[Finding]:
    """Yield what is wrong with one norm, if it is wrong for both conventions of the standard deviation.

    Args:
        subject: The checkpoint.
        place: Path of the norm.
        numbers: Number of elements, mean, standard deviation, smallest and largest element; NaN if not recorded.
        length: The norm.
        precision: Relative error of the norm.
    """
    size, mean, std, low, high = numbers
    largest = max(-low, high, low, -high)
    full = math.sqrt(size * (mean * mean + std * std)) if size == size else math.nan  # noqa: PLR0124  not NaN
    # A standard deviation of the other convention, with n - 1, corresponds to a slightly smaller norm.
    other = math.sqrt(size * mean * mean + max(size - 1, 0) * std * std) if full == full else full  # noqa: PLR0124
    if length < other * (1 - precision) or length > full * (1 + precision):
        yield subject.find(kinds.NORM_AND_MOMENTS, place, f"{full:.6g}, by numel, mean and std", length)
    elif length * (1 + precision) < largest:
        yield subject.find(kinds.NORM_AND_EXTREMES, place, f"at least its largest element {largest:.6g}", length)
    elif full != full and length > (max_norm := largest * math.sqrt(size) * (1 + precision)) and largest > 0:  # noqa: PLR0124
        yield subject.find(kinds.NORM_AND_EXTREMES, place, f"at most {max_norm:.6g}, by numel and extremes", length)


@check(kinds.SPECTRAL_ABOVE_FROBENIUS, reads=("weights.*.spectral_norm", "weights.*.frobenius_norm"))
def spectral(subject: CheckInput, *, precision: float = 1e-2) -> Iterator[Finding]:
    """The largest singular value is at most the root sum of squares of all singular values.

    Args:
        subject: The checkpoint.
        precision: Relative error. Power iteration converges from below; both norms may be bfloat16 (0.4 %).
    """
    for name, sigma, frobenius in subject.table("weights").rows("spectral_norm", "frobenius_norm"):
        if sigma > frobenius * (1 + precision):
            place = ("weights", name, "spectral_norm")
            yield subject.find(kinds.SPECTRAL_ABOVE_FROBENIUS, place, f"at most frobenius_norm {frobenius:.6g}", sigma)


@check(
    kinds.M2_AND_STD,
    kinds.SAMPLE_STD,
    reads=tuple(f"{section}.*.{name}" for section in NORMS for name in ("m2", "std", "numel", "nonfinite_count")),
)
def second_moment(subject: CheckInput, *, precision: float = 1e-2, exact: float = 1e-5) -> Iterator[Finding]:
    """Over all finite elements, m2 = numel * std^2.

    Args:
        subject: The checkpoint.
        precision: Relative error of m2: std may be bfloat16 (0.4 %), and is squared.
        exact: Relative error below which m2 shows the convention of std: float32 sums are good to 1e-6.
    """
    for section in NORMS:
        table = subject.table(section)
        if "m2" not in table.columns:
            continue
        sizes = dict(zip(table.names, numels(subject, section), strict=True))
        skipped = dict(table.recorded("nonfinite_count"))
        for name, m2, std in table.rows("m2", "std"):
            size = sizes[name] - skipped.get(name, 0)
            population, sample = size * std * std, (size - 1) * std * std
            place = (section, name, "std")
            if abs(m2 - sample) <= exact * m2 < abs(m2 - population):
                yield subject.find(kinds.SAMPLE_STD, place, f"{math.sqrt(m2 / size):.6g}, the root of m2 / n", std)
            elif size > 0 and abs(m2 - population) > precision * max(m2, population):
                yield subject.find(kinds.M2_AND_STD, (section, name, "m2"), f"{population:.6g}, numel * std^2", m2)


@check(kinds.RELATIVE_AND_NORM, reads=("weight_deltas.*.norm", "weight_deltas.*.relative", "weights.*.frobenius_norm"))
def relative(subject: CheckInput, *, precision: float = 2e-2) -> Iterator[Finding]:
    """Relative movement is the norm of the update over the norm of the tensor, before or after the update.

    Args:
        subject: The checkpoint.
        precision: Relative error: three numbers of bfloat16 at 0.4 %.
    """
    table, weights = subject.table("weight_deltas"), subject.table("weights")
    if not {"norm", "relative"} <= table.columns.keys() or "frobenius_norm" not in weights.columns:
        return
    frobenius = weights.numbers("frobenius_norm", math.nan)
    if weights.names != table.names:
        known = dict(zip(weights.names, frobenius, strict=True))
        frobenius = [known.get(name, math.nan) for name in table.names]
    lower, upper = 1 - precision, 1 + precision
    norms, shares = table.numbers("norm", math.nan), table.numbers("relative", math.nan)
    for name, moved, share, length in zip(table.names, norms, shares, frobenius, strict=True):
        if moved * lower <= share * length <= moved * upper:
            continue
        # The norm before the update differs from the one after it by at most the update.
        if share * (length + moved) < moved * lower or share * (length - moved) > moved * upper:
            expected = f"{moved / length:.6g}, norm over frobenius_norm" if length else "NaN: the tensor is zero"
            yield subject.find(kinds.RELATIVE_AND_NORM, ("weight_deltas", name, "relative"), expected, share)


@check(
    kinds.MOVED_AT_STEP_ZERO,
    kinds.UPDATED_DESPITE_OVERFLOW,
    reads=("weight_deltas.*.norm", "weight_deltas.*.moved", "step", "optimizer.found_inf"),
)
def movement(subject: CheckInput) -> Iterator[Finding]:
    """Weights do not move before the first update, nor if the scaler skipped it."""
    document = subject.document
    skipped = document.optimizer is not UNSET and document.optimizer.found_inf is True
    if document.step and not skipped:
        return
    for field in ("norm", "moved") if document.step == 0 else ("norm",):
        for name, moved in subject.table("weight_deltas").rows(field):
            if moved > 0:
                kind = kinds.MOVED_AT_STEP_ZERO if document.step == 0 else kinds.UPDATED_DESPITE_OVERFLOW
                yield subject.find(kind, ("weight_deltas", name, field), "0: no update was applied", moved)
