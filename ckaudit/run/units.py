"""Units of shares: each has one unit in the catalogue, and the other one is recognised and converted, once per run.

A share above 1 cannot be a fraction. One that never exceeds 1 may be either where the catalogue has percent: a utilisation below
1 % is absurd, so that it is a fraction, but 0.14 of an overflow rate may be 14 % or one step in seven hundred. There the writer's
other shares decide, or the user with `--unit`; what nobody decides stays as it is and is `undecided`.
"""

from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from ckaudit.contract.schema.scalars import SHARE_UNITS
from ckaudit.errors import UsageError
from ckaudit.run.memory import ResultCache
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Series

NEVER_BELOW_ONE_PERCENT = frozenset({"gpu_util", "topk_mass_probe", "filter_reject_rate"})
"""Shares in percent that are fractions where they never exceed 1: a device, a list of the likeliest tokens or a filter that does
less than a hundredth of its work is not logged step by step."""

SMALL_FRACTIONS = frozenset({"dataloader_stall_frac", "comm_time_frac", "pad_fraction", "grad_clip_rate", "rtp_toxicity_prob"})
"""Shares in fractions of which a healthy run has some percent: values up to 1 may be percent where the writer uses those."""

NEVER_WHOLE = frozenset({"dataloader_stall_frac", "comm_time_frac", "pad_fraction"})
"""Shares of which none is everything: a step is not all waiting, and a batch not all padding. One that reaches 1 is percent."""

UTILISATION = "moe_util_entropy"
"""A share of the entropy of an even spread in the catalogue, and an entropy by itself for many a writer."""

ROUNDING = 1.02
"""A fraction ends at 1, give or take its rounding."""

MFU_OF_A_WRONG_PEAK = 1.5
"""A utilisation a little above 1 is a fraction of a peak that was taken too low, and no percent."""


def in_catalogue_units(run: Run, chosen: Mapping[str, str]) -> Run:
    """Return a run whose shares are in the catalogue's units, with a note on each that was converted.

    Args:
        run: As it was read.
        chosen: The units that the user named, by share.

    Raises:
        UsageError: Where one of them is no share, or no unit.
    """
    check_units(chosen)
    run = _with_entropy_as_share(run)
    units = _recognised({name: series for name, series in run.scalars.items() if name in SHARE_UNITS}, chosen)
    factors = {name: factor for name, unit in units.items() if (factor := factor_to_catalogue(name, unit)) != 1.0}
    if not units:
        return run
    return replace(
        run,
        scalars=_converted(run.scalars, factors),
        branches={session: _converted(scalars, factors) for session, scalars in run.branches.items()},
        notes=(*run.notes, *(_note(name, units[name], is_chosen=name in chosen) for name in factors)),
        units=units,
        _derived=ResultCache(),
    )


def _with_entropy_as_share(run: Run) -> Run:
    """Return a run whose utilisation entropy of experts is a share: one above 1 is in nats or bits of experts nobody counts.

    It is held against the largest that it reached, so that a fall shows, and a router that never was even does not.
    """
    series = run.scalars.get(UTILISATION)
    largest = 0.0 if series is None else float(np.max(series.values[series.finite], initial=0.0))
    if largest <= ROUNDING:
        return run
    note = f"{UTILISATION} exceeds 1: it is no share of the even spread, and was divided by the largest it reached, {largest:.4g}"
    factors = {UTILISATION: 1 / largest}
    return replace(
        run,
        scalars=_converted(run.scalars, factors),
        branches={session: _converted(scalars, factors) for session, scalars in run.branches.items()},
        notes=(*run.notes, note),
        _derived=ResultCache(),
    )


def check_units(chosen: Mapping[str, str]) -> None:
    """Raise `UsageError` where a name is no share, or its unit none of the two."""
    for name, unit in chosen.items():
        if name not in SHARE_UNITS:
            raise UsageError(f"--unit {name}={unit}: {name} is no share", hint=f"Shares are {', '.join(sorted(SHARE_UNITS))}.")
        if unit not in ("percent", "fraction"):
            raise UsageError(f"--unit {name}={unit} is not percent or fraction", hint=f"write it like --unit {name}=percent")


def factor_to_catalogue(name: str, unit: str) -> float:
    """Return what a share is multiplied with that was written in a unit.

    >>> factor_to_catalogue("mfu", "percent"), factor_to_catalogue("gpu_util", "fraction"), factor_to_catalogue("mfu", "fraction")
    (0.01, 100.0, 1.0)
    """
    catalogue_unit = SHARE_UNITS[name]
    return 1.0 if unit == catalogue_unit else 0.01 if catalogue_unit == "fraction" else 100.0


def _converted(scalars: Mapping[str, Series], factors: Mapping[str, float]) -> dict[str, Series]:
    return {
        name: replace(series, values=series.values * factors[name]) if name in factors else series
        for name, series in scalars.items()
    }


def _recognised(shares: Mapping[str, Series], chosen: Mapping[str, str]) -> dict[str, str]:
    """Return the unit in which each share was written: as chosen, as its range says, or as the writer's other shares say."""
    units = {name: chosen.get(name) or _by_range(name, series.values[series.finite]) for name, series in shares.items()}
    habits = {unit for unit in units.values() if unit}
    others = {unit for name, unit in units.items() if unit and SHARE_UNITS[name] == "fraction"}
    for name, unit in units.items():
        is_open = habits if SHARE_UNITS[name] == "percent" else others if name in SMALL_FRACTIONS else set()
        if unit is None and len(is_open) == 1:
            (units[name],) = is_open
    return {name: unit for name, unit in units.items() if unit is not None}


def _by_range(name: str, values: Floats) -> str | None:
    """Return the unit that the range of a share shows, None where it shows none; `values` are finite, of any number."""
    largest = float(np.max(values, initial=0.0))
    if largest > (MFU_OF_A_WRONG_PEAK if name == "mfu" else ROUNDING) or (name in NEVER_WHOLE and largest >= 1):
        return "percent"
    has_ended = name == "lr_phase" and int((values == 1.0).sum()) > 1  # a phase that stays at exactly 1
    return "fraction" if has_ended or (largest > 0 and name in NEVER_BELOW_ONE_PERCENT) else None


def _note(name: str, unit: str, *, is_chosen: bool) -> str:
    if is_chosen:
        return f"{name} was logged in {unit}, as --unit says; the catalogue's unit is {SHARE_UNITS[name]}"
    why = "is not below 1" if unit == "percent" else "never exceeds 1"
    return f"{name} {why} and was read as {unit}; --unit {name}={SHARE_UNITS[name]} reads it the other way"
