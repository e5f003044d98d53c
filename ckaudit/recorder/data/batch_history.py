"""Which batches a run has seen before: a loader that stands still, or that began anew at a resume, shows at once."""

from collections import deque
from pathlib import Path

from ckaudit.recorder.files.scalar_log import values_backwards

MOST = 2**16  # batches remembered, some 10 MB


class BatchesSeen:
    """Remembers the hash of every batch, those of earlier sessions included.

    Args:
        most: How many are remembered; older ones count as never seen.
    """

    def __init__(self, *, max_batches: int = MOST) -> None:
        self._most = max_batches
        self._last: dict[str, int] = {}
        self._order: deque[tuple[int, str]] = deque()

    def recall(self, lines: Path, *, until: int) -> None:
        """Remember the batches of the steps up to a resume, as the log tells them; what was replaced does not count."""
        found = values_backwards(lines, "batch_hash", until=until, max_values=self._most)
        for step, value in sorted(found.items()):
            self.see(step, str(value))

    def see(self, step: int, name: str | None) -> int | None:
        """Remember one batch more by its hash, and return how many steps ago the same inputs were last seen; None: never."""
        if name is None:
            return None
        before = self._last.get(name)
        self._last[name] = step
        self._order.append((step, name))
        if len(self._order) > self._most:
            old, gone = self._order.popleft()
            if self._last.get(gone) == old:
                del self._last[gone]
        return None if before is None else step - before
