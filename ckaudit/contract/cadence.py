"""Steps at which a checkpoint is due: pure functions of the step, so that runs with one cadence have the same checkpoints."""

from collections.abc import Sequence

from ckaudit.contract.schema.manifest import Cadence

DEFAULT_CADENCE: tuple[Cadence, ...] = (
    Cadence(until=100, every=10),
    Cadence(until=1_000, every=50),
    Cadence(until=10_000, every=200),
    Cadence(until=None, every=1_000),
)


def is_due(step: int, cadence: Sequence[Cadence] = DEFAULT_CADENCE) -> bool:
    """Return whether the cadence asks for a checkpoint at `step`; step 0 is always due.

    A boundary belongs to the stretch that it ends: 100 is the last of the tens, 150 the first of the fifties.

    >>> [step for step in range(201) if is_due(step)]
    [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 150, 200]
    """
    every = _distance(step, cadence)
    return step == 0 or (every > 0 and step % every == 0)


def next_due(step: int, cadence: Sequence[Cadence] = DEFAULT_CADENCE) -> int | None:
    """Return the first step after `step` at which the cadence asks for a checkpoint; None if there is none.

    >>> [next_due(step) for step in (0, 9, 10, 100, 149, 1_000)]
    [10, 10, 20, 150, 150, 1200]
    """
    start = 0
    for stretch in cadence:
        after = max(step, start)
        due = (after // stretch.every + 1) * stretch.every if stretch.every > 0 else None
        if due is not None and (stretch.until is None or due <= stretch.until):
            return due
        start = max(start, stretch.until or 0)
    return None


def ordinal(step: int, cadence: Sequence[Cadence] = DEFAULT_CADENCE) -> int:
    """Return the number of checkpoints due in steps 1 to `step`: 0 at the start, 10 at 100, 28 at 1,000.

    >>> [ordinal(step) for step in (0, 9, 10, 100, 1_000, 10_000, 100_000)]
    [0, 0, 1, 10, 28, 73, 163]
    """
    total, start = 0, 0
    for stretch in cadence:
        end = step if stretch.until is None else min(step, stretch.until)
        if end > start and stretch.every > 0:
            total += end // stretch.every - start // stretch.every
        start = max(start, end)
    return total


def _distance(step: int, cadence: Sequence[Cadence]) -> int:
    for stretch in cadence:
        if stretch.until is None or step <= stretch.until:
            return stretch.every
    return 0
