"""The cost of recording: time spent inside steps, relative to the time of the training."""

from collections import deque
from statistics import median
from time import perf_counter

from msgspec import UNSET, UnsetType

from ckaudit.contract.schema.checkpoint import Cost


class OverheadMeter:
    """Sums the costs of one session. The session changes the attributes directly at every step: a call would cost more.

    Attributes:
        durations: Durations of the last steps without recording, in seconds.
        spent: Time spent on recording since the last checkpoint, in seconds.
    """

    def __init__(self) -> None:
        self.durations: deque[float] = deque(maxlen=64)
        self.spent, self._since = 0.0, perf_counter()

    def cost(self, in_step: float, writing: float) -> Cost:
        """Return the cost of a checkpoint, and the share of recording in the time since the last checkpoint.

        Args:
            in_step: Seconds of recording in this step so far. They are part of that time; the rest of the step belongs to the
                next checkpoint.
            writing: Seconds that writing the file takes.
        """
        now, typical, seconds = perf_counter(), median(self.durations), in_step + writing
        spent, elapsed, ms = self.spent + in_step, now - self._since, round(seconds * 1e3, 3)
        self.spent, self._since = -in_step, now
        return Cost(
            ms=ms, step_share=share_of_step(ms, typical), share=round(min(spent / elapsed, 1.0), 5) if elapsed > 0 else UNSET
        )


def share_of_step(ms: float, typical: float) -> float | UnsetType:
    """Return a time relative to the duration of a step, with four digits however small; UNSET if steps take no time."""
    return float(f"{ms / 1e3 / typical:.4g}") if typical > 0 else UNSET
