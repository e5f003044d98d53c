"""Lines of `scalars.jsonl` merged to series: sessions replace each other, checkpoints fill what the log lacks."""

from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct, field

from ckaudit.run.run import Labels
from ckaudit.run.series import Series

_IDENTITY = frozenset({"step", "session", "schema_version"})
_WORDS = frozenset({"NaN", "Infinity", "-Infinity"})


class _Column(Struct):
    steps: "array[int]" = field(default_factory=lambda: array("q"))
    values: "array[float]" = field(default_factory=lambda: array("d"))


class ScalarLog(Struct):
    """Values by catalogue name, gathered line by line."""

    numbers: dict[str, _Column] = field(default_factory=dict)
    words: dict[str, dict[int, str]] = field(default_factory=dict)

    def add(self, step: int, values: Mapping[str, Any]) -> None:
        """Add the values of one step; null is not recorded, the contract's words are numbers."""
        for name, value in values.items():
            if name in _IDENTITY or value is None:
                continue
            if isinstance(value, str) and value not in _WORDS:
                self.words.setdefault(name, {})[step] = value
                continue
            column = self.numbers.get(name)
            if column is None:
                column = self.numbers[name] = _Column()
            column.steps.append(step)
            column.values.append(float(value))

    def __bool__(self) -> bool:
        """Tell whether anything was logged."""
        return bool(self.numbers or self.words)

    def split(self, step: int) -> tuple["ScalarLog", "ScalarLog"]:
        """Return what stands before `step`, and the rest."""
        before, rest = ScalarLog(), ScalarLog()
        for name, column in self.numbers.items():
            for index, each in enumerate(column.steps):
                part = (before if each < step else rest).numbers.setdefault(name, _Column())
                part.steps.append(each)
                part.values.append(column.values[index])
        for name, words in self.words.items():
            for each, word in words.items():
                (before if each < step else rest).words.setdefault(name, {})[each] = word
        return before, rest

    def extend(self, later: "ScalarLog") -> None:
        """Add the values of another log behind one's own."""
        for name, column in later.numbers.items():
            own = self.numbers.setdefault(name, _Column())
            own.steps.extend(column.steps)
            own.values.extend(column.values)
        for name, words in later.words.items():
            self.words.setdefault(name, {}).update(words)

    def series(self, fill: "ScalarLog | None" = None) -> dict[str, Series]:
        """Return one series per name; "slice_val_loss/regular" becomes the column "regular" of slice_val_loss.

        Args:
            fill: What the checkpoints say; it counts where the log itself says nothing of a name and step.
        """
        columns = dict(self.numbers)
        for name, column in (fill.numbers if fill else {}).items():
            columns[name] = _filled(columns[name], column) if name in columns else column
        families: dict[str, dict[str, _Column]] = {}
        for name, column in columns.items():
            family, _, label = name.partition("/")
            families.setdefault(family, {})[label or family] = column
        return {family: _joined(family, members) for family, members in families.items()}

    def texts(self) -> dict[str, Labels]:
        """Return the words by name."""
        return {
            name: Labels(name, tuple(sorted(words)), tuple(words[s] for s in sorted(words))) for name, words in self.words.items()
        }


def _filled(log: _Column, fill: _Column) -> _Column:
    known = set(log.steps)
    missing = [index for index, step in enumerate(fill.steps) if step not in known]
    steps, values = log.steps[:], log.values[:]
    steps.extend(fill.steps[index] for index in missing)
    values.extend(fill.values[index] for index in missing)
    return _Column(steps, values)


def _joined(name: str, columns: Mapping[str, _Column]) -> Series:
    steps = np.unique(np.concatenate([np.frombuffer(column.steps, np.int64) for column in columns.values()]))
    values = np.full((len(steps), len(columns)), np.nan)
    recorded = np.zeros(values.shape, bool)
    for index, column in enumerate(columns.values()):
        rows = np.searchsorted(steps, np.frombuffer(column.steps, np.int64))
        values[rows, index] = np.frombuffer(column.values)
        recorded[rows, index] = True
    return Series(name, "1", steps, tuple(columns), values, recorded)


class SessionLogs:
    """Lines of all sessions of one run; a higher session replaces a lower one from its own first step on."""

    def __init__(self) -> None:
        self._logs: dict[int, ScalarLog] = {}
        self._starts: dict[int, int] = {}

    def add(self, row: Mapping[str, Any]) -> None:
        """Add one line."""
        session, step = int(row.get("session") or 0), int(row["step"])
        if session not in self._logs:
            self._logs[session] = ScalarLog()
        self._starts[session] = min(self._starts.get(session, step), step)
        self._logs[session].add(step, row)

    def merged(self) -> tuple[ScalarLog, dict[int, ScalarLog]]:
        """Return the log that counts, and of each replaced session the part that does not, in the order of sessions."""
        merged, branches = ScalarLog(), {}
        for session in sorted(self._logs):
            end = min((start for other, start in self._starts.items() if other > session), default=None)
            kept, replaced = (self._logs[session], ScalarLog()) if end is None else self._logs[session].split(end)
            merged.extend(kept)
            if replaced:
                branches[session] = replaced
        return merged, branches
