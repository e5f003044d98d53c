"""What recording costs: time taken inside steps, against the time that the training takes."""

from collections import deque
from statistics import median
from time import perf_counter

from msgspec import UNSET

from ckaudit.contract.run_sections import Cost


class OverheadMeter:
    """Follows the steps of one session, which adds to its attributes at every step: a call would cost more than the sum.

    Attributes:
        durations: What the last steps took without recording, in seconds.
        spent: What recording took of them since the checkpoint before, in seconds.
    """

    def __init__(self) -> None:
        self.durations: deque[float] = deque(maxlen=64)
        self.spent, self._since = 0.0, perf_counter()

    def cost(self, seconds: float) -> Cost:
        """Return what a checkpoint cost: so many seconds inside its step, and the share of all steps since the one before it."""
        now, typical = perf_counter(), median(self.durations)
        spent, elapsed = self.spent, now - self._since
        self.spent, self._since = 0.0, now
        return Cost(
            ms=round(seconds * 1e3, 3),
            step_share=round(seconds / typical, 4) if typical > 0 else UNSET,
            share=round(spent / elapsed, 5) if elapsed > 0 else UNSET,
        )
