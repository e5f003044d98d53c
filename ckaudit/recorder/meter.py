"""What recording costs: time taken inside steps, against the time that the training takes."""

from collections import deque
from statistics import median
from time import perf_counter

from msgspec import UNSET

from ckaudit.contract.training import Cost


class Meter:
    """Follows the steps of one session."""

    def __init__(self) -> None:
        self._durations: deque[float] = deque(maxlen=64)
        self._ended = self._since = perf_counter()
        self._spent = 0.0

    def begin(self, start: float, seconds: float) -> None:
        """Note that a step ends at `start`, of which recording has taken so many seconds."""
        self._durations.append(start - self._ended - seconds)

    def end(self, start: float, seconds: float) -> None:
        """Note that a step is recorded, by work since `start` and so many seconds before."""
        self._ended = perf_counter()
        self._spent += seconds + self._ended - start

    def cost(self, seconds: float) -> Cost:
        """Return what a checkpoint cost: so many seconds inside its step, and the share of all steps since the one before it."""
        now, typical = perf_counter(), median(self._durations)
        spent, elapsed = self._spent, now - self._since
        self._spent, self._since = 0.0, now
        return Cost(
            ms=round(seconds * 1e3, 3),
            step_share=round(seconds / typical, 4) if typical > 0 else UNSET,
            share=round(spent / elapsed, 5) if elapsed > 0 else UNSET,
        )
