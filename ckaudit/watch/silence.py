"""Silence of a run: no new line for many times the usual interval, and ranks whose files are overdue."""

from collections import deque
from collections.abc import Iterable
from math import isfinite
from statistics import median

from ckaudit.contract.io.folder import CheckpointFile

TIMES_USUAL = 20.0  # multiple of the usual time between two lines: an evaluation of 20 steps is no stall
TIMES_LONGEST = 3.0  # multiple of the longest recent pause, which was an evaluation or a checkpoint
MIN_SILENCE_SECONDS = 30.0  # seconds
RECENT_PAUSES = 200
MIN_PAUSES = 5
PATIENCE_SECONDS = 60.0  # seconds by which a rank's file may follow the first of its step


class Silence:
    """The pauses between lines of one run.

    Attributes:
        last: Time of the last line, on the clock of the watch; None: no line yet.
        delay: Seconds that a line may take from its writer to the watch.
    """

    def __init__(self, stall_after: float | None = None) -> None:
        """Begin; `stall_after` is the number of seconds that is too long, None: it is learned."""
        self.last: float | None = None
        self.delay = 0.0
        self._after = stall_after
        self._pauses: deque[float] = deque(maxlen=RECENT_PAUSES)
        self._time: float | None = None

    def note_lines(self, now: float, times: Iterable[float], wall: float) -> None:
        """Note new lines.

        Args:
            now: The clock of the watch.
            times: Unix time of each line; empty if the log does not have it.
            wall: Unix time now.
        """
        written = [time for time in times if isfinite(time)]
        for time in written:
            if self._time is not None and time >= self._time:
                self._pauses.append(time - self._time)
            self._time = time
        age = max(0.0, wall - written[-1]) if written else 0.0
        if not written and self.last is not None:
            self._pauses.append(now - self.last)
        self.last = max(now - age, self.last or float("-inf"))

    @property
    def usual(self) -> float | None:
        """The usual seconds between two lines; None: too few lines."""
        return median(self._pauses) if len(self._pauses) >= MIN_PAUSES else None

    @property
    def limit(self) -> float | None:
        """Seconds without a line that are too long; None: not known yet."""
        if self._after is not None:
            return self._after + self.delay
        if self.usual is None:
            return None
        return self.delay + max(MIN_SILENCE_SECONDS, TIMES_USUAL * self.usual, TIMES_LONGEST * max(self._pauses))

    def lasts(self, now: float) -> float | None:
        """Return the seconds since the last line; None: no line yet."""
        return None if self.last is None else now - self.last

    def is_too_long(self, now: float) -> bool:
        """Tell whether the silence is too long."""
        lasts, limit = self.lasts(now), self.limit
        return lasts is not None and limit is not None and lasts > limit


class Ranks:
    """The ranks that write their own files, and those that no longer do."""

    def __init__(self) -> None:
        """Begin without any rank."""
        self._known: set[int] = set()
        self._here: dict[int, set[int]] = {}
        self._since: dict[int, float] = {}
        self._reported: set[int] = set()

    def take(self, files: Iterable[CheckpointFile], now: float) -> None:
        """Note new files."""
        for file in files:
            if file.step is None:
                continue
            self._since.setdefault(file.step, now)
            ranks = self._here.setdefault(file.step, set())
            if file.rank is not None:
                ranks.add(file.rank)
                self._known.add(file.rank)
                self._reported.discard(file.rank)
        for step in sorted(self._here)[:-2]:
            del self._here[step], self._since[step]

    def missing(self, now: float, *, patience: float = PATIENCE_SECONDS) -> list[int]:
        """Return the ranks whose file of the newest step is overdue, each once until it returns."""
        if not self._here:
            return []
        newest = max(self._here)
        ranks = self._here[newest]
        if now - self._since[newest] < patience:
            return []
        lost = sorted(self._known - ranks - self._reported)
        self._reported |= set(lost)
        return lost
