"""Series: the values of one quantity at every recorded step, for every tensor, head or slice."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Steps = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Series(Struct, frozen=True, eq=False, dict=True):
    """A table of one quantity: T steps by P labels.

    `values` is NaN both in cells that are *not recorded* and in cells *recorded as NaN*; only the mask `recorded` tells them
    apart.

    Attributes:
        name: Catalogue name.
        unit: Unit of the values, "1" for a pure number.
        steps: Steps in rising order, shape (T,).
        labels: Tensors, blocks, heads or slices, shape (P,).
        values: Shape (T, P).
        recorded: Shape (T, P).
    """

    name: str
    unit: str
    steps: Steps
    labels: tuple[str, ...]
    values: Floats
    recorded: Mask

    @property
    def finite(self) -> Mask:
        """Cells that hold a number, shape (T, P)."""
        finite = np.isfinite(self.values)
        return np.logical_and(finite, self.recorded, out=finite)

    def finite_in(self, column: int) -> Mask:
        """Return the rows that hold a number in one column, shape (T,); cheaper than `finite` in loops over columns."""
        return self.recorded[:, column] & np.isfinite(self.values[:, column])

    def finite_rows(self, column: int = 0) -> slice | Mask:
        """Return the rows that hold a number in one column, as a slice if they are consecutive."""
        known = self.finite_in(column)
        if not len(known):
            return known
        start, end = int(known.argmax()), len(known) - int(known[::-1].argmax())
        return slice(start, end) if known[start:end].all() else known

    def finite_points(self, column: int = 0) -> tuple[Steps, Floats]:
        """Return steps and values of the finite cells of one column, both shape (N,); views if the rows are consecutive."""
        rows = self.finite_rows(column)
        return self.steps[rows], self.values[rows, column]

    @property
    def nonfinite(self) -> Mask:
        """Cells recorded as NaN or infinity, shape (T, P)."""
        return self.recorded & ~np.isfinite(self.values)

    @property
    def points(self) -> int:
        """Number of steps with at least one recorded cell."""
        return int(self.recorded.any(axis=1).sum())

    @cached_property
    def places(self) -> dict[str, int]:
        """The column of each label; the first one for a duplicate label."""
        return {label: place for place, label in reversed([*enumerate(self.labels)])}

    def __bool__(self) -> bool:
        """Tell whether anything was recorded."""
        return self.recorded.size > 0 and (self.recorded.item(0) or bool(self.recorded.any()))  # the first cell usually is

    def until(self, step: int) -> "Series":
        """Return the part that is known at `step`."""
        end = int(np.searchsorted(self.steps, step, side="right"))
        return replace(self, steps=self.steps[:end], values=self.values[:end], recorded=self.recorded[:end])

    def named(self, name: str, unit: str | None = None) -> "Series":
        """Return the same table under another name."""
        return replace(self, name=name, unit=unit or self.unit)

    def mapped(self, function: Callable[[Floats], Floats], name: str, unit: str) -> "Series":
        """Apply a function to every cell; not-recorded cells stay so."""
        with np.errstate(all="ignore"):
            return replace(self, name=name, unit=unit, values=function(self.values))

    def only(self, keep: Callable[[str], bool]) -> "Series":
        """Return the series with only the labels that `keep` accepts."""
        index = [i for i, label in enumerate(self.labels) if keep(label)]
        if len(index) == len(self.labels):
            return self
        labels = tuple(self.labels[i] for i in index)
        return replace(self, labels=labels, values=self.values[:, index], recorded=self.recorded[:, index])

    def recorded_rows(self) -> "Series":
        """Return the series with only the steps that have a recorded cell."""
        rows: Mask = np.any(self.recorded, axis=1)
        if rows.all():
            return self
        return replace(self, steps=self.steps[rows], values=self.values[rows], recorded=self.recorded[rows])

    def late_median(self) -> float | None:
        """Return the median of all finite cells in the second half of the steps; None if there are none."""
        late = self.values[len(self.values) // 2 :]
        late = late[np.isfinite(late)]
        return float(np.median(late)) if late.size else None

    def grouped(self, groups: Sequence[str | None], reduce: Callable[[Floats], Floats]) -> "Series":
        """Reduce all labels of each group to one column.

        A group's cell is recorded if every member recorded so far is recorded there. It is NaN if one of them is NaN.

        Args:
            groups: Group of each label, None to leave the label out; groups come out in order of first appearance.
            reduce: From shape (K, members) to shape (K,).
        """
        names = list(dict.fromkeys(group for group in groups if group is not None))
        values = np.full((len(self.steps), len(names)), np.nan)
        recorded = np.zeros_like(values, dtype=bool)
        known = np.logical_or.accumulate(self.recorded, axis=0)
        places: dict[str, list[int]] = {name: [] for name in names}
        for place, group in enumerate(groups):
            if group is not None:
                places[group].append(place)
        for column, name in enumerate(names):
            index = np.array(places[name])
            for members, rows in _patterns(known[:, index]):
                part = np.ix_(rows, index[members])
                values[rows, column] = reduce(self.values[part])
                recorded[rows, column] = self.recorded[part].all(axis=1)
        values[~recorded] = np.nan
        return replace(self, labels=tuple(names), values=values, recorded=recorded)


def _patterns(recorded: Mask) -> Iterator[tuple[Mask, Steps]]:
    """Yield each set of members that are known together, and the rows with exactly that set; rows without any are left out."""
    if recorded.all():
        yield np.ones(recorded.shape[1], bool), np.arange(len(recorded))
        return
    sets, which = np.unique(recorded, axis=0, return_inverse=True)
    for number, members in enumerate(sets):
        if members.any():
            yield members, np.flatnonzero(which.ravel() == number)


@lru_cache(maxsize=1024)
def empty(name: str, unit: str = "1") -> Series:
    """Return a series without any record."""
    return Series(name, unit, np.empty(0, np.int64), (), np.empty((0, 0)), np.empty((0, 0), bool))


def single(name: str, unit: str, steps: Steps, values: Floats, recorded: Mask | None = None) -> Series:
    """Make a series of one label from a column, shape (T,)."""
    column = np.asarray(values, np.float64).reshape(-1, 1)
    mask = np.ones_like(column, bool) if recorded is None else recorded.reshape(-1, 1)
    return Series(name, unit, np.asarray(steps, np.int64), (name,), column, mask)


def root_sum_square(values: Floats) -> Floats:
    """Return the square root of the sum of squares over the last axis.

    >>> float(root_sum_square(np.array([[3.0, 4.0]]))[0])
    5.0
    """
    return np.asarray(np.sqrt(np.square(values).sum(axis=-1)))


def mean_of_labels(values: Floats) -> Floats:
    """Return the mean over the last axis.

    >>> float(mean_of_labels(np.array([[3.0, 4.0]]))[0])
    3.5
    """
    return np.asarray(values.mean(axis=-1))


def has_precedent(steps: Steps, *, slack: float = 1.5) -> Mask:
    """Return which steps are no further from the step before than some earlier step was, shape (T,).

    Changes between two checkpoints grow with their distance, so only similar distances are comparable.

    >>> has_precedent(np.array([10, 20, 30, 80, 130])).tolist()
    [True, True, True, False, True]
    """
    distances = np.diff(steps, prepend=steps[:1])
    longest = np.maximum.accumulate(distances)
    return np.concatenate([np.ones(min(2, len(steps)), bool), distances[2:] <= slack * longest[1:-1]])


def merged_steps(*steps: Steps) -> Steps:
    """Return the sorted union of rising arrays of steps: a merge, a hundred times as fast as hashing.

    >>> merged_steps(np.array([1, 5]), np.array([2, 5])).tolist()
    [1, 2, 5]
    """
    others = [more for more in steps[1:] if more is not steps[0] and not np.array_equal(more, steps[0])]
    if steps and not others and (steps[0][:1] >= 0).all() and (steps[0][1:] > steps[0][:-1]).all():
        return steps[0]
    together = np.concatenate([np.empty(0, np.int64), *steps[:1], *others])
    together.sort(kind="stable")
    return together[np.diff(together, prepend=-1) > 0] if len(together) else together


class Aligned(Struct, frozen=True, eq=False):
    """A series at other steps: the last value at or before each step, and its age in steps, both shape (T,) or (T, P)."""

    values: Floats
    age: Steps


def at(series: Series, steps: Steps) -> Aligned:
    """Look up a series at other steps.

    Returns:
        Per step the last *finite* value at or before it, per label; NaN and age -1 where there is none.
    """
    if series.finite.all() and np.array_equal(series.steps, steps):
        return Aligned(series.values, np.zeros(series.values.shape, np.int64))
    values = np.full((len(steps), len(series.labels)), np.nan)
    age = np.full(values.shape, -1, np.int64)
    for column in range(len(series.labels)):
        known_steps, known_values = series.finite_points(column)
        position = np.searchsorted(known_steps, steps, side="right") - 1
        is_known = position >= 0
        rows = position[is_known]
        values[is_known, column] = known_values[rows]
        age[is_known, column] = steps[is_known] - known_steps[rows]
    return Aligned(values, age)
