"""Claims: what a trainer logged although it can be recomputed, beside what its own raw values allow."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from msgspec import Struct

from ckaudit.metrics.metric import Metric
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Series, Steps, merged_steps


class Bounds(Struct, frozen=True, eq=False):
    """What raw values allow a logged number to be.

    Attributes:
        label: The number's name, with a label behind a slash where it has several.
        steps: Steps at which both are known, shape (T,).
        claimed: What was logged, shape (T,).
        low: The least that the raw values allow, rounding and other conventions included, shape (T,).
        high: The most, shape (T,).
    """

    label: str
    steps: Steps
    claimed: Floats
    low: Floats
    high: Floats

    @property
    def nearest(self) -> Floats:
        """What of the allowed range is nearest to the claim, shape (T,): the claim itself where it is inside."""
        return np.minimum(np.maximum(self.claimed, self.low), self.high)


ClaimFunction = Callable[[Run], Iterator[Bounds]]


class Claim(Struct, frozen=True):
    """One name whose logged values are compared with recomputed bounds.

    Attributes:
        name: The catalogue name that may be logged.
        reads: What the bounds are made of.
        function: Yields the bounds.
    """

    name: str
    reads: tuple[str, ...]
    function: ClaimFunction

    @property
    def is_of_log(self) -> bool:
        """Whether a log and run.json can judge it, without checkpoints."""
        others = [path for path in self.reads if path != self.name]
        return not others or any("." not in path for path in others)


CLAIMS: dict[str, Claim] = {}


def claim(name: str, *, reads: Iterable[str | Metric]) -> Callable[[ClaimFunction], ClaimFunction]:
    """Enter a function into the list of claims.

    Args:
        name: The catalogue name that may be logged.
        reads: What the bounds are made of.
    """

    def enter(function: ClaimFunction) -> ClaimFunction:
        flat = [part for read in reads for part in (read.reads if isinstance(read, Metric) else (read,))]
        CLAIMS[name] = Claim(name, tuple(dict.fromkeys([name, *flat])), function)
        return function

    return enter


def every_bound(run: Run) -> list[Bounds]:
    """Return the bounds of every claim that the run makes and that its raw values can judge, computed once per run."""
    return run.derived("claims", lambda: [bounds for claim in CLAIMS.values() for bounds in _judged(claim, run)])


def _judged(claim: Claim, run: Run) -> Iterator[Bounds]:
    """Yield the bounds of one claim, without the steps that cannot be judged."""
    for bounds in claim.function(run) if run.scalar(claim.name) else ():
        known = ~(np.isnan(bounds.claimed) | np.isnan(bounds.low) | np.isnan(bounds.high))
        yield Bounds(bounds.label, bounds.steps[known], bounds.claimed[known], bounds.low[known], bounds.high[known])


def as_table(name: str, columns: list[tuple[str, Steps, Floats]]) -> Series:
    """Return columns of their own steps as one series."""
    steps = merged_steps(*(of_claim for _, of_claim, _ in columns))
    values = np.full((len(steps), len(columns)), np.nan)
    recorded = np.zeros(values.shape, bool)
    for index, (_, mine, column) in enumerate(columns):
        rows = slice(None) if len(mine) == len(steps) else np.searchsorted(steps, mine)
        values[rows, index], recorded[rows, index] = column, True
    return Series(name, "1", steps, tuple(label for label, _, _ in columns), values, recorded)
