"""Columns that grow while a log is read: neither a list of pieces nor an object for each number is kept."""

from array import array

import numpy as np

from ckaudit.importers.tables.numbers import Numbers


class GrowingColumn:
    """A column of numbers, of which some cells may not be recorded."""

    def __init__(self) -> None:
        """Begin empty."""
        self._values = array("d")
        self._recorded = bytearray()

    def __len__(self) -> int:
        """Return how many cells there are."""
        return len(self._recorded)

    def add(self, cells: Numbers) -> None:
        """Add some cells."""
        self._values.frombytes(cells.values.tobytes())
        self._recorded += cells.recorded.tobytes()

    def put(self, place: int, value: float | None) -> None:
        """Add one cell at a place behind the others; those in between are not recorded, nor is None."""
        if len(self._recorded) < place:
            self.fill(place)
        self._values.append(np.nan if value is None else value)
        self._recorded.append(value is not None)

    def fill(self, count: int) -> None:
        """Add cells that are not recorded until there are so many."""
        missing = count - len(self._recorded)
        self._values.extend(array("d", [np.nan]) * missing)
        self._recorded += bytes(missing)

    def numbers(self) -> Numbers:
        """Return the column, which no longer grows: its cells are not copied."""
        return Numbers(np.frombuffer(self._values, np.float64), np.frombuffer(self._recorded, bool))
