"""One column of a log that grows value by value or many at a time; equal steps are kept once for all columns."""

from array import array

import numpy as np
from msgspec import Struct, field

from ckaudit.run.series import Floats, Steps

Part = tuple[Steps, Floats]


class Column(Struct):
    """Values of one name, in the order in which they were logged.

    Attributes:
        parts: What was added many at a time, and before: steps and values, both shape (N,).
        steps: Steps added one by one since.
        values: Their values.
    """

    parts: list[Part] = field(default_factory=list)
    steps: "array[int]" = field(default_factory=lambda: array("q"))
    values: "array[float]" = field(default_factory=lambda: array("d"))

    def extend(self, steps: Steps, values: Floats) -> None:
        """Add many values behind the others."""
        self._close()
        if len(steps):
            self.parts.append((steps, values))

    def joined(self) -> list[Part]:
        """Return everything as parts."""
        self._close()
        return self.parts

    def _close(self) -> None:
        if self.steps:
            self.parts.append((np.array(self.steps, np.int64), np.array(self.values, np.float64)))
            self.steps, self.values = array("q"), array("d")

    def split(self, step: int) -> tuple["Column", "Column"]:
        """Return what stands before `step`, and the rest."""
        before, rest = Column(), Column()
        for steps, values in self.joined():
            early = steps < step
            if early.all():
                before.extend(steps, values)
            elif not early.any():
                rest.extend(steps, values)
            else:
                before.extend(steps[early], values[early])
                rest.extend(steps[~early], values[~early])
        return before, rest


class Joined(Struct, frozen=True, eq=False):
    """All of a column: steps and values, both shape (N,), and whether the steps rise from each to the next."""

    steps: Steps
    values: Floats
    rises: bool


class Joiner:
    """Joins the parts of many columns, and gives those with the same steps the same array of them."""

    def __init__(self) -> None:
        self._parts: dict[tuple[int, int, int], list[Steps]] = {}
        self._known: dict[tuple[int, ...], tuple[Steps, bool]] = {}

    def join(self, column: Column) -> Joined:
        """Return all steps and values of a column."""
        each = [self._shared(steps) for steps, _ in column.joined()] or [np.empty(0, np.int64)]
        key = tuple(map(id, each)) if column.parts else ()
        if key not in self._known:
            joined = np.concatenate(each)
            self._known[key] = joined, bool((joined[1:] > joined[:-1]).all())
        steps, rises = self._known[key]
        return Joined(steps, np.concatenate([values for _, values in column.parts] or [np.empty(0)]), rises)

    def _shared(self, steps: Steps) -> Steps:
        """Return the array that was first seen with these steps; it is kept, so that its id stays its own."""
        alike = self._parts.setdefault((len(steps), int(steps[0]), int(steps[-1])), [])
        found = next((other for other in alike if other is steps or np.array_equal(other, steps)), None)
        if found is None:
            alike.append(steps)
        return steps if found is None else found
