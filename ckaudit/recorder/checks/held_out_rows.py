"""Checks whether training uses held-out rows: compares hashes of whole rows at inspected steps."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ckaudit.recorder.batch_facts import inputs_and_targets, row_fingerprints
from ckaudit.recorder.stats.arrays import dtype_name
from ckaudit.recorder.stats.float32_rounding import shorten
from ckaudit.recorder.target_alignment import TOKEN_TYPES

HELD_OUT_SHARE = "held_out_rows_trained_on"

MAX_ROWS = 2**16  # rows remembered of each kind

MIN_ALIKE = 2
"""Distinct rows, each repeated within one batch, that show that rows recur by nature; a single one may be an error in the
data."""

MIN_ROW_TOKENS = 24  # tokens of a row without padding: shorter rows recur by chance. Lee et al. (2022) count from 50 on


class HeldOutCheck:
    """Held-out rows, and those of them that a training batch contained.

    Rows are equal if all their elements are, padding included. Two different rows collide with probability 2^-63.

    If there are few different rows, as in a table of categories, two sets share some by chance. Pairs within one batch are then
    equal as often as pairs of a training row and a held-out row. A leak raises only the latter.

    Args:
        max_rows: Rows remembered of each kind; later ones are dropped.
    """

    def __init__(self, *, max_rows: int = MAX_ROWS) -> None:
        self._max_rows = max_rows
        self._held_out_rows, self._shared, self._repeated = set[int](), set[int](), set[int]()
        self._trained = Counter[int]()
        self._pairs = 0
        self._is_declared = False

    def add_batch(self, batch: Any) -> None:
        """Add the rows of a batch to the held-out rows."""
        rows = [*rows_of(batch)]
        self._compare_within(rows)
        self.add_rows({*rows}, is_declared=True)

    def add_rows(self, rows: set[int], *, is_declared: bool = False) -> None:
        """Add hashes of `rows_of` to the held-out rows: declared by the user, or seen in a trainer's evaluation."""
        self._is_declared |= is_declared
        if len(self._held_out_rows) < self._max_rows:
            self._held_out_rows |= rows
            self._shared |= rows & self._trained.keys()

    def overlap(self, batch: Any) -> dict[str, float]:
        """Return the share of held-out rows that training batches contained so far; empty if nothing can be compared."""
        if not self._held_out_rows or not (rows := [*rows_of(batch)]):
            return {}
        self._compare_within(rows)
        if len(self._trained) < self._max_rows:
            self._trained.update(rows)
        self._shared |= self._held_out_rows.intersection(rows)
        is_all_evaluated_on = not self._is_declared and self._trained.keys() <= self._held_out_rows  # evaluates on training rows
        if is_all_evaluated_on or self._is_shared_by_chance():
            return {}
        return {HELD_OUT_SHARE: shorten(100 * len(self._shared) / len(self._held_out_rows))}

    def _compare_within(self, rows: Sequence[int]) -> None:
        self._repeated |= {row for row, times in Counter(rows).items() if times > 1}
        self._pairs += len(rows) * (len(rows) - 1) // 2

    def _is_shared_by_chance(self) -> bool:
        """Tell whether pairs within a batch are equal at least half as often as pairs of a training row and a held-out row."""
        shared = sum(self._trained[row] for row in self._shared - self._repeated)
        across = len(self._held_out_rows - self._repeated) * self._trained.total()
        return (
            bool(self._shared) and len(self._repeated) >= MIN_ALIKE and 2 * len(self._repeated) * across >= self._pairs * shared
        )


def rows_of(batch: Any) -> list[int]:
    """Return hashes of the input rows of a batch that are long enough to be told apart; none if the inputs have no rows."""
    inputs = inputs_and_targets(batch)[0]
    if inputs is None or len(inputs.shape) < 2 or 0 in inputs.shape:
        return []
    hashes = row_fingerprints(inputs)
    if dtype_name(inputs) not in TOKEN_TYPES:
        return list(hashes.tolist())
    tokens = inputs.reshape(len(inputs), -1)
    # Padding may be on either side.
    is_long = [(tokens != pad).sum(1) >= MIN_ROW_TOKENS for pad in (tokens[:, :1], tokens[:, -1:])]
    return list(hashes[is_long[0] & is_long[1]].tolist())
