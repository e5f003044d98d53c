"""Units of shares: each share has one unit in the catalogue; values in the other unit are recognised and converted once per run.

A share above 1 cannot be a fraction. If the catalogue's unit is percent, a share that never exceeds 1 may be either. A
utilisation below 1 % is absurd, so it is a fraction; but an overflow rate of 0.14 may be 14 % or one step in seven hundred. In
such cases the writer's other shares decide, or the user with `--unit`. A share that neither decides stays as it is and counts as
undecided.
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
"""Shares in percent that count as fractions if they never exceed 1: a device, a list of the likeliest tokens or a filter that
does less than a hundredth of its work is not logged step by step."""

SMALL_FRACTIONS = frozenset({"dataloader_stall_frac", "comm_time_frac", "pad_fraction", "grad_clip_rate", "rtp_toxicity_prob"})
"""Shares in fractions that are a few percent in a healthy run: values up to 1 may be percent if the writer uses percent
elsewhere."""

NEVER_WHOLE = frozenset({"dataloader_stall_frac", "comm_time_frac", "pad_fraction"})
"""Shares that never reach a whole: a step is not all waiting, and a batch not all padding. One that reaches 1 is in percent."""

UTILISATION = "moe_util_entropy"
"""In the catalogue, a share of the entropy of a uniform distribution; many writers log the entropy itself."""

ROUNDING = 1.02
"""Largest value of a fraction, including rounding."""

MFU_OF_A_WRONG_PEAK = 1.5
"""A utilisation slightly above 1 is a fraction of a peak that was assumed too low, and not in percent."""


def in_catalogue_units(run: Run, chosen: Mapping[str, str]) -> Run:
    """Return a run with its shares in the catalogue's units, and a note on each converted share.

    Args:
        run: The run as it was read.
        chosen: Units named by the user, by share.

    Raises:
        UsageError: If a name is not a share, or a unit is unknown.
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
    """Return a run whose expert utilisation entropy is a share; values above 1 are in nats or bits of an unknown expert count.

    They are divided by the largest value reached, so that a fall shows; a router that was never uniform does not show.
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
    """Raise `UsageError` if a name is not a share, or its unit neither percent nor fraction."""
    for name, unit in chosen.items():
        if name not in SHARE_UNITS:
            raise UsageError(f"--unit {name}={unit}: {name} is no share", hint=f"Shares are {', '.join(sorted(SHARE_UNITS))}.")
        if unit not in ("percent", "fraction"):
            raise UsageError(f"--unit {name}={unit} is not percent or fraction", hint=f"write it like --unit {name}=percent")


def factor_to_catalogue(name: str, unit: str) -> float:
    """Return the factor that converts a share in a unit to the catalogue's unit.

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
    """Return the unit of each share as logged: as the user chose, else from its range, else from the writer's other shares."""
    units = {name: chosen.get(name) or _by_range(name, series.values[series.finite]) for name, series in shares.items()}
    habits = {unit for unit in units.values() if unit}
    others = {unit for name, unit in units.items() if unit and SHARE_UNITS[name] == "fraction"}
    for name, unit in units.items():
        is_open = habits if SHARE_UNITS[name] == "percent" else others if name in SMALL_FRACTIONS else set()
        if unit is None and len(is_open) == 1:
            (units[name],) = is_open
    return {name: unit for name, unit in units.items() if unit is not None}


def _by_range(name: str, values: Floats) -> str | None:
    """Return the unit that the range of a share shows, or None; `values` are finite and may be empty."""
    largest = float(np.max(values, initial=0.0))
    if largest > (MFU_OF_A_WRONG_PEAK if name == "mfu" else ROUNDING) or (name in NEVER_WHOLE and largest >= 1):
        return "percent"
    has_ended = name == "lr_phase" and int((values == 1.0).sum()) > 1  # a phase that stays at exactly 1 has ended
    return "fraction" if has_ended or (largest > 0 and name in NEVER_BELOW_ONE_PERCENT) else None


def _note(name: str, unit: str, *, is_chosen: bool) -> str:
    if is_chosen:
        return f"{name} was logged in {unit}, as --unit says; the catalogue's unit is {SHARE_UNITS[name]}"
    why = "is not below 1" if unit == "percent" else "never exceeds 1"
    return f"{name} {why} and was read as {unit}; --unit {name}={SHARE_UNITS[name]} reads it the other way"
