"""When a number of the black box left its own range: measured against the median of its steps before."""

import numpy as np
from msgspec import Struct

from ckaudit.audit.autopsy.result import How, Kind
from ckaudit.contract.schema.numbers import Number
from ckaudit.run.medians import median
from ckaudit.run.robust import MAD_TO_SIGMA
from ckaudit.run.series import Floats, Mask


class Range(Struct, frozen=True, kw_only=True):
    """What is usual of a kind of number.

    Attributes:
        above: Times its median, from which on it is out.
        below: A part of its median, below which it is out; 0: never.
        deviations: Robust deviations that it must stand above besides.
        dead: At or below this it is out, whatever its median; None: never.
        window: Steps before that count.
        least: Steps before, without which nothing is usual.
    """

    above: float
    below: float = 0.0
    deviations: float = 8.0
    dead: float | None = None
    window: int = 24
    least: int = 8


# Losses spread by tenths from batch to batch, gradient norms by halves (a healthy start goes through a factor of ten in the
# black box, and 8 robust deviations let that pass). 1e-10 is what the playbook calls a dead gradient (D1.3).
RANGES: dict[Kind, Range] = {
    "loss": Range(above=1.3),
    "gradient": Range(above=2.0, below=0.01, dead=1e-10),
    "gradient_norm": Range(above=2.0, below=0.01, dead=1e-10),
    "update": Range(above=3.0, below=0.01, dead=0.0),
    "learning_rate": Range(above=1.5, below=0.67, deviations=0.0, window=1),
}


class Out(Struct, frozen=True, kw_only=True):
    """One step out of range: its place in the box, which way, and what was usual."""

    row: int
    how: How
    usual: float | None
    times: float | None


class Channel(Struct, frozen=True, eq=False, kw_only=True):
    """One number over the steps of the box; what is not recorded is NaN and not `recorded`.

    Attributes:
        kind: What it is.
        name: The tensor; empty where it is one number of the run.
        values: Shape (K,).
        recorded: Shape (K,).
        words: The same as the file has it.
    """

    kind: Kind
    name: str
    values: Floats
    recorded: Mask
    words: tuple[Number | None, ...]


def outs(channel: Channel) -> list[Out]:
    """Return every step at which a number is out of its range, oldest first."""
    rule, found = RANGES[channel.kind], []
    for row in np.flatnonzero(channel.recorded).tolist():
        value = float(channel.values[row])
        known = channel.values[:row][np.isfinite(channel.values[:row])]
        earlier = known[-rule.window :]
        usual = median(earlier) if len(known) >= rule.least else None
        how = way_out(value, usual, _spread(earlier), rule, channel.kind)
        if how:
            times = value / usual if usual and np.isfinite(value) else None
            found.append(Out(row=row, how=how, usual=usual, times=times))
    return found


def way_out(value: float, usual: float | None, spread: float, rule: Range, kind: Kind) -> How | None:
    """Return which way a value is out of its range, None where it is inside."""
    if not np.isfinite(value):
        return "not_finite"
    if rule.dead is not None and abs(value) <= rule.dead:
        return "dead"
    if usual is None or usual <= 0:
        return None
    if value > max(rule.above * usual, usual + rule.deviations * spread):
        return "changed" if kind == "learning_rate" else "above"
    if value < rule.below * usual:
        return "changed" if kind == "learning_rate" else "below"
    return None


def _spread(values: Floats) -> float:
    """Return the robust standard deviation, 0 of nothing."""
    return MAD_TO_SIGMA * median(np.abs(values - median(values))) if len(values) else 0.0


def is_back(values: Floats, usual: float | None, limit_times: float) -> Mask:
    """Return which later values (N,) are finite and no farther from what was usual than `limit_times`, either way."""
    finite = np.isfinite(values)
    if not usual:
        return np.asarray(finite & (values != 0))
    with np.errstate(invalid="ignore"):
        return np.asarray(finite & (values <= limit_times * usual) & (values >= usual / (10 * limit_times)))
