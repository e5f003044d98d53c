"""Departures from the band of the siblings as findings."""

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from ckaudit.contract.schema.numbers import encode_float
from ckaudit.contract.schema.report import Finding, Severity
from ckaudit.diff.siblings.bands import BandDeparture
from ckaudit.diff.siblings.kinds import RATE
from ckaudit.diff.siblings.rates import RateDeparture
from ckaudit.run.run import Run
from ckaudit.run.series import Floats


def findings_of(departures: Sequence[BandDeparture], run: Run) -> Iterator[Finding]:
    """Yield a finding for each kind of departure to one side; of its places the one farthest outside speaks.

    Args:
        departures: All of a run.
        run: The run, which knows what one unit of its loss is called.
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
    """Return how grave a departure is: a note where it lies on the side on which nothing is ill."""
    harm = departure.band.quantity.harm
    return "sev2" if harm in ("either", "higher" if departure.is_higher else "lower") else "note"


def _when(departure: BandDeparture) -> str:
    parts, worst = departure.band.stretches, departure.worst
    first, last = int(parts.first[worst]), int(parts.last[worst])
    return f"at step {last}" if first == last else f"at steps {first} to {last}"


def _beside(departure: BandDeparture) -> str:
    """Return where the siblings lie, how many of them say so, and what chance explains."""
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


def rate_finding(departure: RateDeparture) -> Finding:
    """Return the finding of a learning rate that leaves the course which its siblings share."""
    whose = "its sibling" if departure.siblings == 1 else f"all {departure.siblings} siblings"
    when = (
        f"from step {departure.first} to {departure.last}" if departure.last > departure.first else f"at step {departure.first}"
    )
    finding = RATE.at(
        None,
        f"{when} the learning rate is not that of {whose}: {departure.own:.4g} at first, theirs {departure.theirs:.4g}",
        where=departure.label,
        first_step=departure.first,
        last_step=departure.last,
        value=encode_float(departure.own),
        limit=encode_float(departure.theirs),
    )
    return replace(finding, severity="note") if departure.may_follow_loss else finding
