"""Where a learning rate leaves the course that all siblings share."""

from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ckaudit.contract.schema.numbers import encode_float
from ckaudit.contract.schema.report import Finding
from ckaudit.diff.siblings.bands import SiblingRun
from ckaudit.diff.siblings.kinds import RATE
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.rules.rule import true_stretches
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Mask, Steps


class RateDeparture(Struct, frozen=True, kw_only=True):
    """Where a learning rate is not what all siblings have.

    Attributes:
        label: Which rate.
        first: First step of it.
        last: Last step of it.
        own: The run's rate then.
        theirs: What the siblings have.
        siblings: How many they are.
        may_follow_loss: Whether it was lowered in one piece, as a schedule does that waits for the loss to stand still.
    """

    label: str
    first: int
    last: int
    own: float
    theirs: float
    siblings: int
    may_follow_loss: bool


def rate_departures(
    run: Run, siblings: Sequence[SiblingRun], *, alike: float = 1e-3, least: float = 0.01
) -> Iterator[RateDeparture]:
    """Yield for each learning rate the first stretch in which the siblings agree and the run does not.

    Rates that follow the loss differ from sibling to sibling: once those do not agree, nothing is judged any more.

    Args:
        run: The run.
        siblings: Its siblings.
        alike: Relative difference up to which rates agree.
        least: Relative difference from which on the run's rate is another one.
    """
    own, theirs = learning_rate(run), [learning_rate(sibling.run) for sibling in siblings]
    for column, label in enumerate(own.labels):
        known = [series for series in theirs if label in series.labels]
        if not known:
            continue
        steps = reduce(np.intersect1d, [series.steps for series in known], own.steps)
        rate = own.values[np.searchsorted(own.steps, steps), column]
        table = np.array([series.values[np.searchsorted(series.steps, steps), series.labels.index(label)] for series in known])
        yield from _first(label, steps, rate, table, alike, least)


def _first(
    label: str, steps: Steps, rate: Floats, table: Floats, alike: float, least: float, *, lasting: int = 3
) -> Iterator[RateDeparture]:
    if not len(steps):
        return
    with np.errstate(invalid="ignore"):
        middle = np.median(table, axis=0)
        agree: Mask = np.logical_and.accumulate(np.ptp(table, axis=0) <= alike * np.abs(middle))
        apart: Mask = agree & (np.abs(rate - middle) > least * np.maximum(np.abs(middle), np.abs(rate)))
    for begin, end in true_stretches(apart, min_points=min(lasting, len(steps))):
        held = begin > 0 and (table[0, begin] == table[0, begin - 1] or rate[begin] == rate[begin - 1])
        yield RateDeparture(
            label=label,
            first=int(steps[begin]),
            last=int(steps[end - 1]),
            own=float(rate[begin]),
            theirs=float(middle[begin]),
            siblings=len(table),
            may_follow_loss=len(table) == 1 or (held and bool(rate[begin] < middle[begin])),
        )
        return


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
