"""Statistics of single tensors and layers in a foreign log become checkpoints of `ck.analysis.v1`.

A value that stands twice at one step with different numbers is a run that went back: what the older part said of that
statistic from there on does not hold any more. Histograms that carry the sums of their values give exact norms; of bins
alone a norm is taken only where it cannot be far off, and the notes say how far.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from math import isnan
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from ckaudit.contract.schema.manifest import TensorFacts
from ckaudit.contract.schema.numbers import to_word
from ckaudit.importers.importer import Document
from ckaudit.importers.layers.histogram_moments import Bins, Floats, Moments, Whole, bins_of
from ckaudit.importers.layers.names import NORMS, Place, bare, place_of, place_of_histogram, tensor_facts
from ckaudit.importers.names import listed
from ckaudit.importers.tables.numbers import MAX_STEP

_SIGNED = frozenset({"mean", "min", "max", "percentiles", "max_logit_per_head", "entropy_per_head", "aux_loss"})

_KEPT = {
    "gradients": {"norm", "mean", "std", "min", "max", "numel", "percentiles", "histogram"},
    "weights": {"frobenius_norm", "mean", "std", "min", "max", "numel", "percentiles", "histogram"},
    "weight_deltas": {"norm"},
    "activations": {"mean", "std", "rms", "min", "max", "histogram"},
}

MAX_ENTRIES = 4096  # experts of a layer or heads

# Checkpoints made of single values only when somebody asks for one: so many of them fill far more room than the values.
_COUNTS = frozenset({"numel"})


class Checkpoints(Sequence[Document]):
    """The checkpoints of a run, in the order of steps.

    Args:
        places: Where each target's values belong.
        bins: Histograms, which values of a field "histogram" are numbers of.
        steps: Shape (N,); rising.
        owners: Shape (N,); which target each value is of.
        values: Shape (N,).
    """

    def __init__(self, places: list[Place], bins: list[Bins], steps: Whole, owners: Whole, values: Floats) -> None:
        self._places, self._bins, self._owners, self._values = places, bins, owners, values
        self._steps, self._starts = np.unique(steps, return_index=True)

    def __len__(self) -> int:
        return len(self._steps)

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Document]: ...
    def __getitem__(self, index: int | slice) -> Document | Sequence[Document]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        end = self._starts[index + 1] if index + 1 < len(self) else len(self._owners)
        return self._made(int(self._steps[index]), slice(int(self._starts[index]), int(end)))

    def __iter__(self) -> Iterator[Document]:
        return (self[index] for index in range(len(self)))

    def _made(self, step: int, part: slice) -> Document:
        document: dict[str, Any] = {"step": step}
        lists: dict[tuple[str, str, str], dict[int, Any]] = {}
        for owner, value in zip(self._owners[part].tolist(), self._values[part].tolist(), strict=True):
            place = self._places[owner]
            entry = document.setdefault(place.section, {}).setdefault(place.name, {})
            if place.source:
                document.setdefault("gradients_source", place.source)
            if place.index >= 0:
                lists.setdefault((place.section, place.name, place.field), {})[place.index] = to_word(value)
            elif place.field == "histogram":
                entry[place.field] = self._bins[int(value)].document()
            else:
                entry[place.field] = int(value) if place.field in _COUNTS and not isnan(value) else to_word(value)
        for (section, name, field), found in lists.items():
            if len(found) == max(found) + 1:
                document[section][name][field] = [found[index] for index in range(len(found))]
        return document


class Layers:
    """Collects them value by value, in the order of the log."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._places: dict[str, Place | None] = {}
        self._targets: dict[Place, int] = {}
        self._steps, self._owners, self._values = array("q"), array("q"), array("d")
        self._bins: list[Bins] = []
        self._left: dict[str, None] = {}
        self._negative = self._unread = 0
        self._worst = 0.0
        self._estimated = self._normless = 0

    def __bool__(self) -> bool:
        """Tell whether anything was taken that a checkpoint holds."""
        return bool(self._steps)

    def take(self, step: int, name: str, value: float) -> bool:
        """Take a scalar where its name says a statistic of one tensor or layer.

        Args:
            step: Update attempts finished.
            name: As the log has it.
            value: A number; NaN: recorded as NaN.

        Returns:
            Whether it was one, even if a checkpoint has no field for it.
        """
        if name not in self._places:
            self._places[name] = place_of(name)
        place = self._places[name]
        if place is None:
            return False
        if not place.field or place.index >= MAX_ENTRIES:
            self._left.setdefault(name)
        elif 0 <= step <= MAX_STEP and not (place.zero_is_absent and value == 0):
            self._add(step, place, place.convert(value) if place.convert else value)
        return True

    def take_series(self, name: str, steps: Whole, values: Floats) -> bool:
        """Take many scalars of one name in the order of the log, as `take` takes each.

        Args:
            name: As the log has it.
            steps: Shape (N,); update attempts finished.
            values: Shape (N,).

        Returns:
            Whether the name says a statistic of one tensor or layer.
        """
        place = place_of(name)
        if place is None:
            return False
        if place.index >= 0 or place.convert or place.zero_is_absent or not place.field:
            for step, value in zip(steps.tolist(), values.tolist(), strict=True):
                self.take(step, name, value)
            return True
        kept = (steps >= 0) & (steps <= MAX_STEP)
        self._extend(place, steps[kept], values[kept])
        return True

    def take_histogram(
        self, step: int, name: str, edges: Sequence[float], counts: Sequence[float], moments: Moments | None = None
    ) -> bool:
        """Take the histogram of a tensor's or layer's values.

        Args:
            step: Update attempts finished.
            name: As the log has it.
            edges: n + 1 edges.
            counts: n counts.
            moments: Sums over the values, where the log has them.

        Returns:
            Whether the name said a tensor or layer.
        """
        place = place_of_histogram(name)
        if place is None or not 0 <= step <= MAX_STEP:
            return place is not None
        bins = bins_of(edges, counts)
        if bins is None and moments is None:
            self._unread += 1
            return True
        known: dict[str, Any] = {}
        if bins is not None:
            known, worst = bins.statistics()
            self._add_bins(step, place, bins)
            if moments is None and place.section in NORMS:
                self._estimated += "norm" in known
                self._normless += "norm" not in known
                self._worst = max(self._worst, worst)
        self._spread(step, place, known | (moments.statistics() if moments else {}))
        return True

    def put(self, step: int, section: str, name: str, field: str, value: float, *, index: int = -1) -> None:
        """Take a value whose place is known already, such as ("gradients", "fc1.weight", "norm"); of a list with its index."""
        if index < MAX_ENTRIES:
            self._add(step, Place(section, bare(name), field, index), value)

    def extend(self, section: str, field: str, names: Sequence[str], steps: Whole, owners: Whole, values: Floats) -> None:
        """Take many values of one field.

        Args:
            section: Section of a checkpoint.
            field: Its field.
            names: Tensors or layers.
            steps: Shape (N,); update attempts finished.
            owners: Shape (N,); whose value each is, as a place in `names`.
            values: Shape (N,).
        """
        order = np.argsort(owners, kind="stable")
        bounds = np.searchsorted(owners[order], np.arange(len(names) + 1))
        for name, start, end in zip(names, bounds[:-1], bounds[1:], strict=True):
            own = order[start:end]
            self._extend(Place(section, bare(name), field), steps[own], values[own])

    def documents(self) -> Sequence[Document]:
        """Return the checkpoints in the order of steps; each is made when it is asked for."""
        return Checkpoints(list(self._targets), self._bins, *self._sorted())

    def tensors(self) -> dict[str, TensorFacts]:
        """Return what the tensors' names say of them, for the tensor table of `run.json`."""
        return tensor_facts(dict.fromkeys(place.name for place in self._targets if place.section in NORMS))

    def notes(self) -> list[str]:
        """Say what became of it."""
        notes = []
        if self:
            notes.append(f"statistics of single tensors and layers made {len(self.documents()):,} checkpoints: {self._summary()}")
        if self._left:
            notes.append(
                f"{len(self._left):,} statistics of layers have no field in a checkpoint: {listed(list(self._left), max_names=3)}"
            )
        if self._estimated or self._normless:
            notes.append(self._histogram_note())
        if self._unread:
            notes.append(f"{self._unread:,} histograms are empty or not in order and were left out")
        if self._negative:
            notes.append(f"{self._negative:,} values below zero where there can be none were left out")
        return notes

    def _summary(self) -> str:
        fields: dict[str, dict[str, None]] = {}
        names: dict[str, set[str]] = {}
        for place in self._targets:
            fields.setdefault(place.section, {}).setdefault(place.field)
            names.setdefault(place.section, set()).add(place.name)
        return "; ".join(f"{section} of {len(names[section]):,} ({', '.join(fields[section])})" for section in fields)

    def _histogram_note(self) -> str:
        said = f"histograms without the sums of their values: of {self._estimated:,} the norm was taken from the bins"
        said += f", at most {self._worst:.0%} off" if self._estimated else ""
        return said + (f"; of {self._normless:,} the bins are too wide for one" if self._normless else "")

    def _extend(self, place: Place, steps: Whole, values: Floats) -> None:
        if place.field not in _SIGNED:
            kept = ~(values < 0)
            self._negative += int((~kept).sum())
            steps, values = steps[kept], values[kept]
        target = self._targets.setdefault(place, len(self._targets))
        self._steps.frombytes(np.ascontiguousarray(steps, np.int64).tobytes())
        self._owners.frombytes(np.full(len(steps), target, np.int64).tobytes())
        self._values.frombytes(np.ascontiguousarray(values, np.float64).tobytes())

    def _add(self, step: int, place: Place, value: float) -> None:
        if value < 0 and place.field not in _SIGNED:
            self._negative += 1
            return
        self._steps.append(step)
        self._owners.append(self._targets.setdefault(place, len(self._targets)))
        self._values.append(value)

    def _add_bins(self, step: int, place: Place, bins: Bins) -> None:
        self._bins.append(bins)
        if "histogram" in _KEPT.get(place.section, ()):
            self._add(step, _at(place, "histogram"), len(self._bins) - 1)

    def _spread(self, step: int, place: Place, known: Mapping[str, Any]) -> None:
        kept = _KEPT.get(place.section, set())
        for field, value in known.items():
            named = NORMS.get(place.section, "") if field == "norm" else field
            if named not in kept:
                continue
            for index, each in enumerate(value) if isinstance(value, list) else ((-1, value),):
                self._add(step, _at(place, named, index), each)

    def _sorted(self) -> tuple[Whole, Whole, Floats]:
        """Return steps, targets and values in the order of steps, without what a later part of the log replaced."""
        steps, owners, values = np.array(self._steps), np.array(self._owners), np.array(self._values)
        order = np.lexsort((steps, owners))  # equal ones stay in the order of the log
        same = (np.diff(owners[order]) == 0) & (np.diff(steps[order]) == 0)
        older, newer = order[:-1][same], order[1:][same]
        differs = ~((values[older] == values[newer]) | (np.isnan(values[older]) & np.isnan(values[newer])))
        kept = np.ones(len(steps), bool)
        kept[older] = False
        changed = np.zeros(len(steps), bool)
        changed[newer[differs]] = True
        for owner in np.unique(owners[changed]).tolist():
            own = np.flatnonzero(owners == owner)
            kept[own] &= ~_replaced(steps[own], changed[own])
        chosen = np.flatnonzero(kept)
        chosen = chosen[np.argsort(steps[chosen], kind="stable")]
        return steps[chosen], owners[chosen], values[chosen]


def _replaced(steps: Whole, changed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Tell which values lie at or above a step at which one that comes later in the log says something new."""
    back = np.where(changed, steps, MAX_STEP + 1)
    lowest_after = np.append(np.minimum.accumulate(back[::-1])[::-1][1:], MAX_STEP + 1)
    return np.asarray(lowest_after <= steps)


def _at(place: Place, field: str, index: int = -1) -> Place:
    return Place(place.section, place.name, field, index, place.source)
