"""Lines that name an epoch, as columns: the position of each line in the training, and its values by key."""

from array import array
from collections.abc import Iterable, Mapping
from functools import reduce

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from ckaudit.importers.tables.growing_column import GrowingColumn
from ckaudit.importers.tables.numbers import Numbers, count_of, number
from ckaudit.importers.text.line_patterns import NO_RANK, Ints, LineOrigin, Mask
from ckaudit.importers.text.line_values import name_of
from ckaudit.importers.text.prefix import NO_PREFIX, parse_prefix

NONE = -1
"""A batch, or a number of batches, that a line does not name."""

COUNTER = "global_step"
"""The key of an update counter."""

_PRESENT, _WITH_POINT, _MOST_PLACES = 1, 2, 63


class EpochLine(Struct, frozen=True, gc=False):
    """The values of one line, and its position in the training.

    Attributes:
        line: Its number.
        text: The text before its values: time and rank.
        epoch: The epoch that it names, or the last one named before it.
        batch: Batch within the epoch; None where the line belongs to the whole epoch.
        batches: Batches per epoch; None where the line does not say.
        values: Text of the values by key.
        in_samples: Whether it counts samples, not batches.
        names_epoch: Whether the line names its epoch itself.
    """

    line: int
    text: str
    epoch: int
    batch: int | None
    batches: int | None
    values: dict[str, str]
    in_samples: bool = False
    names_epoch: bool = False


class ValueColumn(Struct, frozen=True):
    """The values of one key, all of shape (N,).

    Attributes:
        numbers: The values; a text that is not a number is not recorded.
        present: Which lines hold the key.
        with_point: Which lines hold a text with a decimal point.
        places: Index of the value among those of its line, from 0 to `_MOST_PLACES`.
    """

    numbers: Numbers
    present: Mask
    with_point: Mask
    places: NDArray[np.uint8]

    def at(self, rows: Mask) -> "ValueColumn":
        """Return the selected lines."""
        numbers = self.numbers.at(np.flatnonzero(rows))
        return ValueColumn(numbers, self.present[rows], self.with_point[rows], self.places[rows])

    def only(self, rows: Mask) -> "ValueColumn":
        """Return the column as if other lines did not hold the key."""
        return ValueColumn(self.numbers.only(rows), self.present & rows, self.with_point & rows, self.places)


class EpochLines(Struct, frozen=True):
    """N lines, in the order of the log; attributes of each line have shape (N,).

    Attributes:
        origin: Origin of the lines.
        epochs: The epoch of each line.
        batches: The batch of each line, `NONE` where it belongs to the whole epoch.
        sizes: Batches per epoch, `NONE` where the line does not say.
        in_samples: Whether a line counts samples, not batches.
        names_epoch: Whether a line names its epoch itself.
        counts: The update that `COUNTER` gives, `NONE` where a line has none.
        columns: The values by key, in the order in which keys first appeared.
    """

    origin: LineOrigin
    epochs: Ints
    batches: Ints
    sizes: Ints
    in_samples: Mask
    names_epoch: Mask
    counts: Ints
    columns: dict[str, ValueColumn]

    def __len__(self) -> int:
        """Return the number of lines."""
        return len(self.epochs)

    @property
    def has_batch(self) -> Mask:
        """Mask of the lines that name a batch."""
        return np.asarray(self.batches != NONE)

    @property
    def changes(self) -> Mask:
        """Mask of the lines whose epoch differs from the previous line's, without the first line: shape (N - 1,)."""
        return np.asarray(self.epochs[1:] != self.epochs[:-1])

    @property
    def places_of_epochs(self) -> Ints:
        """The index of each line's epoch, in order of appearance: shape (N,)."""
        return np.concatenate([[0], np.cumsum(self.changes)])[: len(self)]

    def lines_per_epoch(self, name: str) -> dict[str, float]:
        """Return how many lines that name their epoch the median epoch has of each key with a catalogue name."""
        counts = {}
        places = self.places_of_epochs
        for key, column in self.columns.items():
            if name_of(key) != name:
                continue
            in_epochs = np.bincount(places[column.present & self.names_epoch])
            if in_epochs.any():
                counts[key] = float(np.median(in_epochs[in_epochs > 0]))
        return counts

    def holding(self, keys: Iterable[str]) -> Mask:
        """Return a mask of the lines that hold one of some keys."""
        return reduce(np.logical_or, (self.columns[key].present for key in keys), np.zeros(len(self), bool))

    def holding_name(self, *names: str) -> Mask:
        """Return a mask of the lines that hold a key with one of some catalogue names."""
        return self.holding(key for key in self.columns if name_of(key) in names)

    def kept(self, rows: Mask) -> "EpochLines":
        """Return the selected lines."""
        if rows.all():
            return self
        return EpochLines(
            self.origin.at(rows),
            self.epochs[rows],
            self.batches[rows],
            self.sizes[rows],
            self.in_samples[rows],
            self.names_epoch[rows],
            self.counts[rows],
            in_order({key: column.at(rows) for key, column in self.columns.items()}),
        )

    def renamed(self, names: Mapping[str, str]) -> "EpochLines":
        """Return the lines with new names for some keys."""
        return replace(self, columns={names.get(key, key): column for key, column in self.columns.items()})

    def counted_updates(self) -> Ints | None:
        """Return the update of each line by `COUNTER`; None where the first line or one with a training loss lacks it."""
        known = self.counts != NONE
        if not len(self) or not known[0] or (~known & self.holding_name("train_loss_raw")).any():
            return None
        return self.counts[np.maximum.accumulate(np.where(known, np.arange(len(self)), 0))]


def in_order(columns: Mapping[str, ValueColumn]) -> dict[str, ValueColumn]:
    """Return the columns that are not empty, ordered by the first line that holds them, then by position in that line."""
    firsts = {key: int(column.present.argmax()) for key, column in columns.items() if column.present.any()}
    return {key: columns[key] for key in sorted(firsts, key=lambda key: (firsts[key], columns[key].places[firsts[key]]))}


class _GrowingValues(Struct):
    """The values of one key while lines are read: numbers, and properties of their texts."""

    numbers: GrowingColumn = field(default_factory=GrowingColumn)
    marks: bytearray = field(default_factory=bytearray)

    def put(self, row: int, place: int, text: str) -> None:
        """Append the text of one line, and its index among the line's values."""
        self.numbers.put(row, number(text.replace(",", "") if "," in text else text))
        marks = self.marks
        if len(marks) < row:
            marks += bytes(row - len(marks))
        marks.append(
            (place << 2 if place < _MOST_PLACES else _MOST_PLACES << 2) | (_PRESENT | _WITH_POINT if "." in text else _PRESENT)
        )

    def column(self, count: int) -> ValueColumn:
        """Return the column over `count` lines."""
        self.numbers.fill(count)
        self.marks += bytes(count - len(self.marks))
        marks = np.frombuffer(self.marks, np.uint8)
        return ValueColumn(self.numbers.numbers(), marks > 0, (marks & _WITH_POINT) > 0, np.right_shift(marks, 2, dtype=np.uint8))


def lines_as_columns(lines: Iterable[EpochLine]) -> EpochLines:
    """Return lines as columns; each line is dropped once it is converted."""
    line_numbers, ranks, epochs, batches, sizes, counts = (array("q") for _ in range(6))
    times, in_samples, names_epoch = array("d"), bytearray(), bytearray()
    values: dict[str, _GrowingValues] = {}
    for row, line in enumerate(lines):
        mark = parse_prefix(line.text) if line.text else NO_PREFIX
        line_numbers.append(line.line)
        ranks.append(NO_RANK if mark.rank is None else mark.rank)
        times.append(np.nan if mark.time is None else mark.time)
        epochs.append(line.epoch)
        batches.append(NONE if line.batch is None else line.batch)
        sizes.append(NONE if line.batches is None else line.batches)
        count = count_of(line.values[COUNTER]) if COUNTER in line.values else None
        counts.append(NONE if count is None else count)
        in_samples.append(line.in_samples)
        names_epoch.append(line.names_epoch)
        for place, (key, text) in enumerate(line.values.items()):
            if key not in values:
                values[key] = _GrowingValues()
            values[key].put(row, place, text)
    columns = {key: collected.column(len(times)) for key, collected in values.items()}
    origin = LineOrigin(_ints(line_numbers), _ints(ranks), np.frombuffer(times, np.float64))
    masks = np.frombuffer(in_samples, bool), np.frombuffer(names_epoch, bool)
    return EpochLines(origin, _ints(epochs), _ints(batches), _ints(sizes), *masks, _ints(counts), columns)


def _ints(column: "array[int]") -> Ints:
    return np.frombuffer(column, np.int64)
