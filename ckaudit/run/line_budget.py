"""Limits on the names, sessions and tensors of a log: a small compressed file can name enough of them to exhaust memory."""

from collections.abc import Iterator, Sequence
from typing import Any

from ckaudit.contract import violations
from ckaudit.contract.io.jsonl import Row
from ckaudit.contract.schema.report import Finding

MAX_NAMES = 100_000  # several norms of each of 18,000 tensors, with a margin
MAX_SESSIONS = 1_000  # a run that restarts twice a day for over a year
MAX_TENSORS = 20_000  # over all checkpoints; each may hold another part of a mixture of experts
TENSORS_OF_ONE = 4  # multiple of the names of the largest checkpoint
MAX_MASKS = 100  # sessions per table: each needs a mask over all lines
MAX_CELLS = 2**24  # labels times steps of one metric whose table is nearly empty
SPARSE = 100  # cells per value up to which a table is not nearly empty
NOT_COUNTED = frozenset({"step", "session", "schema_version", "time"})


class LineBudget:
    """Passes lines on until they name too many scalars or sessions; from then on only those named before."""

    def __init__(self) -> None:
        """Begin without names."""
        self._names: set[str] = set(NOT_COUNTED)
        self._sessions: set[int] = set()
        self._left_out = self._lines_left_out = 0

    def rows(self, rows: Sequence[Row]) -> Iterator[Row]:
        """Yield each row, or the part of it that fits."""
        return (fitting for fitting in map(self.fitting, rows) if fitting is not None)

    def fitting(self, row: Row) -> Row | None:
        """Return a row, or the part of it that fits; None if its session does not."""
        session = int(row.get("session") or 0)
        if session not in self._sessions:
            if len(self._sessions) == MAX_SESSIONS:
                self._lines_left_out += 1
                return None
            self._sessions.add(session)
        return row if row.keys() <= self._names else self._known(row)

    def _known(self, row: Row) -> Row:
        """Learn the new names of a row and return it without those beyond the limit."""
        new = [name for name in row if name not in self._names]
        room = MAX_NAMES + len(NOT_COUNTED) - len(self._names)
        self._names.update(new[:room])
        if len(new) <= room:
            return row
        self._left_out += len(new) - room
        return {name: value for name, value in row.items() if name in self._names}

    def findings(self, shown: str) -> list[Finding]:
        """Return findings on what was left out since the last call."""
        findings = []
        if self._left_out:
            message = f"names more than {MAX_NAMES:,} different scalars; {self._left_out:,} values of later names were not read"
            findings.append(violations.TOO_LARGE.at(shown, message))
        if self._lines_left_out:
            message = f"holds more than {MAX_SESSIONS:,} sessions; {self._lines_left_out:,} lines of later ones were not read"
            findings.append(violations.TOO_LARGE.at(shown, message))
        self._left_out = self._lines_left_out = 0
        return findings


class TensorBudget:
    """Passes the tensors of checkpoints on until they have far more names than any single checkpoint."""

    def __init__(self) -> None:
        """Begin without names."""
        self._names: dict[str, set[str]] = {}
        self._most: dict[str, int] = {}
        self._left_out: dict[str, int] = {}

    def fitting(self, section: str, part: dict[str, Any]) -> dict[str, Any]:
        """Return the entries of a checkpoint's section whose names fit."""
        known = self._names.setdefault(section, set())
        largest = self._most[section] = max(self._most.get(section, 0), len(part))
        if part.keys() <= known:
            return part
        new = [name for name in part if name not in known]
        room = max(MAX_TENSORS, TENSORS_OF_ONE * largest) - len(known)
        known.update(new[:room])
        if len(new) <= room:
            return part
        self._left_out[section] = self._left_out.get(section, 0) + len(new) - room
        return {name: value for name, value in part.items() if name in known}

    @property
    def notes(self) -> list[str]:
        """A note on each section from which something was left out."""
        return [
            f"checkpoints name ever new tensors in {section}: of the first {len(self._names[section]):,} everything was read, "
            f"and {count:,} entries of later ones were left out"
            for section, count in self._left_out.items()
        ]


def labels_that_fit(name: str, labels: int, steps: int, values: int, notes: list[str]) -> int:
    """Return how many labels of a metric fit into one table of its steps, and add a note if not all do.

    Args:
        name: The metric.
        labels: Its number of labels.
        steps: Number of steps at which any label has a value.
        values: Total number of values.
        notes: The note is appended here.
    """
    if labels * steps <= max(MAX_CELLS, SPARSE * values):
        return labels
    fit = max(1, MAX_CELLS // steps)
    notes.append(f"{name} has {labels:,} labels at {steps:,} steps, and hardly any value: only the first {fit:,} were read")
    return fit
