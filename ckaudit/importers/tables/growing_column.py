"""A column that grows while a log is read, without a list of pieces or an object per number."""

from array import array

import numpy as np

from ckaudit.importers.tables.numbers import Numbers


class GrowingColumn:
    """A column of numbers; some cells may be not recorded."""

    def __init__(self) -> None:
        """Start empty."""
        self._values = array("d")
        self._recorded = bytearray()

    def __len__(self) -> int:
        """Return the number of cells."""
        return len(self._recorded)

    def add(self, cells: Numbers) -> None:
        """Append cells."""
        self._values.frombytes(cells.values.tobytes())
        self._recorded += cells.recorded.tobytes()

    def put(self, place: int, value: float | None) -> None:
        """Append one cell at a position at or after the end; cells in between are not recorded, nor is None."""
        if len(self._recorded) < place:
            self.fill(place)
        self._values.append(np.nan if value is None else value)
        self._recorded.append(value is not None)

    def fill(self, count: int) -> None:
        """Append cells that are not recorded, up to a total count."""
        missing = count - len(self._recorded)
        self._values.extend(array("d", [np.nan]) * missing)
        self._recorded += bytes(missing)

    def numbers(self) -> Numbers:
        """Return the column without copying its cells; it must not grow any more."""
        return Numbers(np.frombuffer(self._values, np.float64), np.frombuffer(self._recorded, bool))
