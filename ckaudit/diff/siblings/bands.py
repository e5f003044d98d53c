"""The band of the siblings' values of a quantity, where a run leaves it for good, and the resulting findings."""

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from ckaudit.contract.schema.numbers import encode_float
from ckaudit.contract.schema.report import Finding, Severity
from ckaudit.diff.align import CommonAxis
from ckaudit.diff.divergence import first_stretch_outside
from ckaudit.diff.noise import Stretches, quantile, stretches
from ckaudit.diff.siblings.kinds import LOSS
from ckaudit.diff.siblings.quantities import QUANTITIES, Quantity
from ckaudit.run.medians import median
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Mask, Series, Steps, at

TINY_SHARE = 1e-6
"""Share of the smallest positive value that replaces 0 in logarithms."""

KEPT = 0.5
"""Minimum width of a loss band, as a share of its largest width in the second half of the steps so far. The difference of two
seeds while the loss fell remains when a schedule ends the fall, but the pace from which `noise.stretches` computes it
vanishes."""

MIN_ROWS = 3
"""Minimum number of points that the run and its siblings share."""


class SiblingRun(Struct, frozen=True, eq=False):
    """One healthy sibling.

    Attributes:
        run: The sibling, cut off at the last step of the run.
        axes: The common axis with the run.
        is_of_one_machine: Whether its speed is comparable.
    """

    run: Run
    axes: CommonAxis = CommonAxis()
    is_of_one_machine: bool = True


class SiblingColumns(Struct, frozen=True, eq=False):
    """A quantity of one place in a run and its siblings.

    Attributes:
        steps: Steps of the run, shape (T,).
        own: Values of the run, shape (T,).
        theirs: Values of each sibling, shape (T,) each.
    """

    steps: Steps
    own: Floats
    theirs: list[Floats] = field(default_factory=list)


class Band(Struct, frozen=True, eq=False):
    """One column of a quantity and those of the siblings, by segments.

    Attributes:
        quantity: The quantity.
        label: Block or layer; the name of the quantity if it is of the whole model.
        stretches: The run (right) against the siblings (left), as logarithms if the quantity is a ratio.
        levels: Median of each sibling in each segment, shape (R, K).
        columns: The underlying points.
        unit: Unit of the values.
    """

    quantity: Quantity
    label: str
    stretches: Stretches
    levels: Floats
    columns: SiblingColumns
    unit: str = "1"

    @property
    def least(self) -> float:
        """The smallest difference that is reported, on the scale of the segments."""
        return float(np.log(self.quantity.min_ratio)) if self.quantity.is_ratio else 0.0

    def value(self, number: float) -> float:
        """Return a number of the band in the unit of the quantity."""
        return float(np.exp(number)) if self.quantity.is_ratio else float(number)


class BandDeparture(Struct, frozen=True, eq=False):
    """A departure of a run from a band for good.

    Attributes:
        band: The band.
        first: The first segment outside.
        last: The last one.
        worst: The segment farthest outside.
        width: Half-width of the band around the siblings' mean there.
        votes: Number of siblings that are that far from the run by themselves.
    """

    band: Band
    first: int
    last: int
    worst: int
    width: float
    votes: int

    @property
    def is_higher(self) -> bool:
        """Whether the run is above the band."""
        return bool(self.band.stretches.excess[self.worst] > 0)


def all_bands(run: Run, siblings: Sequence[SiblingRun], quantities: Sequence[Quantity] = QUANTITIES) -> list[Band]:
    """Return the band of each place of each quantity that the run and at least one sibling recorded.

    The noise of an evaluation is that of the training loss: evaluations of one seed are closer together than those of two.
    """
    bands: list[Band] = []
    for quantity in quantities:
        noise = next((band.stretches.alone for band in bands if band.quantity.kind is LOSS), None)
        bands += _bands_of(quantity, run, siblings, own=noise if quantity.is_evaluation else None)
    return bands


def _bands_of(quantity: Quantity, run: Run, siblings: Sequence[SiblingRun], *, own: float | None) -> list[Band]:
    series = quantity.series(run)
    comparable = [sibling for sibling in siblings if sibling.is_of_one_machine or not quantity.of_clock]
    theirs = [(quantity.series(sibling.run), sibling.axes) for sibling in comparable]
    bands = []
    for label in series.labels:
        columns = columns_of(label, series, theirs, is_ratio=quantity.is_ratio)
        if columns is not None:
            bands.append(_band(quantity, label, columns, series.unit, own))
    return bands


def _band(quantity: Quantity, label: str, columns: SiblingColumns, unit: str, own: float | None) -> Band:
    first, *others = columns.theirs
    size = 1 if quantity.is_evaluation else 0
    parts = stretches(columns.steps, first, columns.own, others, size=size, own=own, seed=quantity.seed)
    if not quantity.is_ratio:
        parts = replace(parts, spread=np.maximum(parts.spread, KEPT * _widest_of_late(parts)))
    ends = np.searchsorted(columns.steps, parts.last, side="right")
    cuts = np.searchsorted(columns.steps, parts.first, side="left")
    levels = np.array([[median(column[cut:end]) for cut, end in zip(cuts, ends, strict=True)] for column in columns.theirs])
    return Band(quantity, label, parts, levels, columns, unit)


def _widest_of_late(parts: Stretches) -> Floats:
    """Return the largest spread of each segment and those before it back to half of its steps, shape (K,)."""
    starts = np.searchsorted(parts.last, parts.last / 2)
    return np.array([parts.spread[start : row + 1].max() for row, start in enumerate(starts)])


def columns_of(label: str, own: Series, theirs: Sequence[tuple[Series, CommonAxis]], *, is_ratio: bool) -> SiblingColumns | None:
    """Return one place of a run and of the siblings that recorded it, at their common steps.

    Steps at which only the run has a checkpoint, as after an event, are left out if enough others remain. A sibling that covers
    less than half of the run's steps is left out.
    """
    column = own.only(label.__eq__)
    steps, values = column.steps[column.finite[:, 0]], column.finite_points()[1]
    looked_up = [match for series, axes in theirs if (match := _looked_up(label, series, axes.matching_steps(steps))) is not None]
    known = [(values_of_one, near, exact) for values_of_one, near, exact in looked_up if near.mean() > 1 / 2]
    if not known:
        return None
    shared: Mask = np.all([near for _, near, _ in known], axis=0)
    exact: Mask = shared & np.any([exact for _, _, exact in known], axis=0)
    rows = exact if 2 * exact.sum() >= shared.sum() else shared
    if rows.sum() < MIN_ROWS:
        return None
    table = np.array([values[rows], *(values_of_one[rows] for values_of_one, _, _ in known)])
    if is_ratio:
        positive = table[table > 0]
        if not positive.size:
            return None
        table = np.log(np.maximum(table, TINY_SHARE * positive.min()))
    return SiblingColumns(steps[rows], table[0], list(table[1:]))


def _looked_up(label: str, series: Series, steps: Steps) -> tuple[Floats, Mask, Mask] | None:
    """Return a sibling's values at some steps, where they are recent, and where they are of exactly that step."""
    if label not in series.places or not len(steps):
        return None
    column = series.only(label.__eq__)
    known = column.steps[column.finite[:, 0]]
    aligned = at(column, steps)
    spacing = median(np.diff(known)) if len(known) > 1 else 0.0
    age = aligned.age[:, 0]
    return aligned.values[:, 0], (age >= 0) & (age <= 2 * spacing) & (steps >= 0), age == 0


def band_departures(bands: Sequence[Band], *, tests: int, share: float = 0.003) -> Iterator[BandDeparture]:
    """Yield where a run leaves each band for good, according to most of the siblings.

    Args:
        bands: The bands.
        tests: Number of tested segments over all bands.
        share: Share of healthy runs that leave any band by chance.
    """
    limit = quantile(share / max(1, tests))
    for band in bands:
        excess = band.stretches.excess
        for side in (1, -1):
            apart = side * (band.stretches.right - band.stretches.left)
            outside = (side * excess > limit) & (apart > band.least)
            first = first_stretch_outside(outside)
            if first is None:
                continue
            last = int(np.flatnonzero(outside)[-1])
            worst = first + int(np.argmax(side * excess[first : last + 1]))
            width = max(band.least, limit * band.stretches.spread[worst])
            votes = int((side * (band.stretches.right[worst] - band.levels[:, worst]) > width).sum())
            if 2 * votes > len(band.levels):
                yield BandDeparture(band, first, last, worst, width, votes)


def findings_of(departures: Sequence[BandDeparture], run: Run) -> Iterator[Finding]:
    """Yield a finding for each kind of departure to one side, at its place farthest outside.

    Args:
        departures: All departures of a run.
        run: The run, which knows the unit of its loss.
    """
    groups: dict[tuple[str, bool], list[BandDeparture]] = {}
    for departure in departures:
        groups.setdefault((departure.band.quantity.kind.code, departure.is_higher), []).append(departure)
    for members in groups.values():
        speaker = max(members, key=lambda departure: abs(float(departure.band.stretches.excess[departure.worst])))
        yield _finding(speaker, [member for member in members if member is not speaker], run)


def _finding(departure: BandDeparture, others: Sequence[BandDeparture], run: Run) -> Finding:
    band, parts, worst = departure.band, departure.band.stretches, departure.worst
    span = [departure, *others]
    edge = parts.left[worst] + (1 if departure.is_higher else -1) * departure.width
    more = f" (and {len(others)} more, such as {others[0].band.label})" if others else ""
    subject = band.quantity.says.format(where=band.label)
    sentence = f"{subject} is {band.value(parts.right[worst]):.4g} {_when(departure)}, {_beside(departure)}"
    finding = band.quantity.kind.at(
        None,
        sentence + more,
        where=band.label,
        first_step=min(int(one.band.stretches.first[one.first]) for one in span),
        last_step=max(int(one.band.stretches.last[one.last]) for one in span),
        worst_step=int(parts.last[worst]),
        value=encode_float(band.value(parts.right[worst])),
        limit=encode_float(band.value(edge)),
        unit=run.shown_unit(band.unit),
        also=[one.band.label for one in others],
    )
    return replace(finding, severity=_severity(departure))


def _severity(departure: BandDeparture) -> Severity:
    """Return the severity of a departure: a note if it is on the harmless side."""
    harm = departure.band.quantity.harm
    return "sev2" if harm in ("either", "higher" if departure.is_higher else "lower") else "note"


def _when(departure: BandDeparture) -> str:
    parts, worst = departure.band.stretches, departure.worst
    first, last = int(parts.first[worst]), int(parts.last[worst])
    return f"at step {last}" if first == last else f"at steps {first} to {last}"


def _beside(departure: BandDeparture) -> str:
    """Return where the siblings are, how many of them agree, and what chance explains."""
    band, levels = departure.band, departure.band.levels[:, departure.worst]
    count = len(levels)
    side = "above" if departure.is_higher else "below"
    who = (
        "its sibling"
        if count == 1
        else f"all {count} siblings"
        if departure.votes == count
        else f"{departure.votes} of {count} siblings"
    )
    chance = f"a factor of {np.exp(departure.width):.3g}" if band.quantity.is_ratio else f"{departure.width:.2g}"
    return f"{side} {who} ({_range(np.array([band.value(level) for level in levels]))} there), and chance explains {chance}"


def _range(values: Floats) -> str:
    low, high = (f"{value:.4g}" for value in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"
