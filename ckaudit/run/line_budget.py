"""How much the lines of a log may ask for: each new name costs a column, each session a log, whatever the file weighs packed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ckaudit.contract import violations
from ckaudit.contract.schema.report import Finding

MAX_NAMES = 100_000  # several norms of each of 18,000 tensors, and room
MAX_SESSIONS = 1_000  # a run that was started again twice a day for a year and more
MAX_TENSORS = 20_000  # names over all checkpoints: those of a model of experts, a part of which each checkpoint has
TENSORS_OF_ONE = 4  # times the names of the largest checkpoint
MAX_MASKS = 100  # sessions in one table: each needs a mask of all its lines
MAX_CELLS = 2**24  # of one metric, labels times steps, where hardly any of them holds a value
SPARSE = 100  # cells to a value
NOT_COUNTED = frozenset({"step", "session", "schema_version", "time"})


class LineBudget:
    """Lets lines through until they name more than fits, and then what was named before."""

    def __init__(self) -> None:
        """Begin without names."""
        self._names: set[str] = set(NOT_COUNTED)
        self._sessions: set[int] = set()
        self._left_out = self._lines_left_out = 0

    def rows(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Yield each row, or as much of it as fits."""
        for row in rows:
            session = int(row.get("session") or 0)
            if session not in self._sessions:
                if len(self._sessions) == MAX_SESSIONS:
                    self._lines_left_out += 1
                    continue
                self._sessions.add(session)
            yield row if row.keys() <= self._names else self._known(row)

    def _known(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Learn the new names of a row, and return it without those that are too many."""
        new = [name for name in row if name not in self._names]
        room = MAX_NAMES + len(NOT_COUNTED) - len(self._names)
        self._names.update(new[:room])
        if len(new) <= room:
            return row
        self._left_out += len(new) - room
        return {name: value for name, value in row.items() if name in self._names}

    def findings(self, shown: str) -> list[Finding]:
        """Return what was left out since the last call."""
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
    """Lets the tensors of checkpoints through until their names are far more than any one checkpoint has."""

    def __init__(self) -> None:
        """Begin without names."""
        self._names: dict[str, set[str]] = {}
        self._most: dict[str, int] = {}
        self._left_out: dict[str, int] = {}

    def fitting(self, section: str, part: dict[str, Any]) -> dict[str, Any]:
        """Return the entries of a section in a checkpoint whose names fit."""
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
        """One sentence for each section that something was left out of."""
        return [
            f"checkpoints name ever new tensors in {section}: of the first {len(self._names[section]):,} everything was read, "
            f"and {count:,} entries of later ones were left out"
            for section, count in self._left_out.items()
        ]


def labels_that_fit(name: str, labels: int, steps: int, values: int, notes: list[str]) -> int:
    """Return how many labels of a metric fit into one table of its steps, and note where those are not all.

    Args:
        name: The metric.
        labels: How many it has.
        steps: Steps at which any has a value.
        values: Values in all.
        notes: Gets the note.
    """
    if labels * steps <= max(MAX_CELLS, SPARSE * values):
        return labels
    fit = max(1, MAX_CELLS // steps)
    notes.append(f"{name} has {labels:,} labels at {steps:,} steps, and hardly any value: only the first {fit:,} were read")
    return fit
