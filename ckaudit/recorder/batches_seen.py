"""Which batches a run has seen before: a loader that stands still, or that began anew at a resume, shows at once."""

from collections import deque
from pathlib import Path
from typing import Any

from ckaudit.contract.training import BatchFacts
from ckaudit.recorder.attempt import Attempt
from ckaudit.recorder.batch import batch_facts, batch_hash
from ckaudit.recorder.scalars import values_backwards

MOST = 2**16  # batches remembered, some 10 MB


class BatchesSeen:
    """Remembers the hash of every batch, those of earlier sessions included.

    Args:
        most: How many are remembered; older ones count as never seen.
    """

    def __init__(self, *, most: int = MOST) -> None:
        self._most = most
        self._last: dict[str, int] = {}
        self._order: deque[tuple[int, str]] = deque()

    def recall(self, lines: Path, *, until: int) -> None:
        """Remember the batches of the steps up to a resume, as the log tells them; what was replaced does not count."""
        found = values_backwards(lines, "batch_hash", until=until, most=self._most)
        for step, value in sorted(found.items()):
            self.see(step, str(value))

    def look(
        self, attempt: Attempt, batch: Any, batch_id: str | int | None, source: str | None, vocabulary: int | None
    ) -> tuple[str | None, BatchFacts | None]:
        """Put what identifies a batch into the values of its step.

        Returns:
            Its hash, None where it has no inputs; and what is known of it, where the step has a checkpoint.
        """
        found = batch_hash(batch)
        if found is not None:
            attempt.values.setdefault("batch_hash", found)
            if (ago := self.see(attempt.step, found)) is not None:
                attempt.values.setdefault("batch_repeat_distance", ago)
        if batch_id is not None:
            attempt.values.setdefault("batch_id", batch_id)
        if not attempt.is_due:
            return found, None
        return found, batch_facts(batch, input_hash=found, batch_id=batch_id, source=source, vocabulary=vocabulary)

    def see(self, step: int, name: str) -> int | None:
        """Remember one batch more by its hash, and return how many steps ago the same inputs were last seen; None: never."""
        before = self._last.get(name)
        self._last[name] = step
        self._order.append((step, name))
        if len(self._order) > self._most:
            old, gone = self._order.popleft()
            if self._last.get(gone) == old:
                del self._last[gone]
        return None if before is None else step - before
