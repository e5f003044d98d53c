"""What recording costs: time taken inside steps, against the time that the training takes."""

from collections import deque
from statistics import median
from time import perf_counter

from msgspec import UNSET, UnsetType

from ckaudit.contract.schema.checkpoint import Cost


class OverheadMeter:
    """Follows the steps of one session, which adds to its attributes at every step: a call would cost more than the sum.

    Attributes:
        durations: What the last steps took without recording, in seconds.
        spent: What recording took of them since the checkpoint before, in seconds.
    """

    def __init__(self) -> None:
        self.durations: deque[float] = deque(maxlen=64)
        self.spent, self._since = 0.0, perf_counter()

    def cost(self, in_step: float, writing: float) -> Cost:
        """Return what a checkpoint cost, and the share of the time since the one before it that recording took.

        Args:
            in_step: Seconds of its step that recording has taken so far. They are part of that time; what follows in the
                step is part of the next checkpoint's.
            writing: Seconds that it takes to write it, beside the training.
        """
        now, typical, seconds = perf_counter(), median(self.durations), in_step + writing
        spent, elapsed, ms = self.spent + in_step, now - self._since, round(seconds * 1e3, 3)
        self.spent, self._since = -in_step, now
        return Cost(
            ms=ms, step_share=share_of_step(ms, typical), share=round(min(spent / elapsed, 1.0), 5) if elapsed > 0 else UNSET
        )


def share_of_step(ms: float, typical: float) -> float | UnsetType:
    """Return a time over the seconds of a step, in four digits however small it is; nothing of steps that take no time."""
    return float(f"{ms / 1e3 / typical:.4g}") if typical > 0 else UNSET
