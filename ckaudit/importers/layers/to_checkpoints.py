"""Checkpoints of `ck.analysis.v1` from a log's statistics of single tensors and layers.

Where one step has two different values of a statistic, the run went back: its older values from that step on are dropped.
Histograms with the sums of their values give exact norms. Bins alone give a norm only where it cannot be far off, and the notes
state the maximum error.
"""

from array import array
from collections.abc import Iterator, Sequence
from math import isnan
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from ckaudit.contract.schema.manifest import TensorFacts
from ckaudit.contract.schema.numbers import encode_float
from ckaudit.importers.importer import Document
from ckaudit.importers.layers.histogram_moments import Bins, Floats, ValueSums, Whole, bins_of
from ckaudit.importers.layers.names import NORMS, CheckpointPlace, place_of, place_of_histogram, tensor_facts, without_wrappers
from ckaudit.importers.names import list_names
from ckaudit.importers.tables.numbers import MAX_STEP

_SIGNED = frozenset({"mean", "min", "max", "percentiles", "max_logit_per_head", "entropy_per_head", "aux_loss"})

_FIELDS = {
    "gradients": {"norm", "mean", "std", "min", "max", "numel", "percentiles", "histogram"},
    "weights": {"frobenius_norm", "mean", "std", "min", "max", "numel", "percentiles", "histogram"},
    "weight_deltas": {"norm"},
    "activations": {"mean", "std", "rms", "min", "max", "histogram"},
}

MAX_ENTRIES = 4096  # experts of a layer, or heads

_COUNTS = frozenset({"numel"})


class Checkpoints(Sequence[Document]):
    """The checkpoints of a run in step order, each built on access: all of them at once need far more memory.

    Args:
        places: The places of values in a checkpoint.
        bins: Histograms; a value of a field "histogram" is an index into them.
        steps: Shape (N,); ascending.
        owners: Shape (N,); index of each value's place.
        values: Shape (N,).
    """

    def __init__(self, places: list[CheckpointPlace], bins: list[Bins], steps: Whole, owners: Whole, values: Floats) -> None:
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
            return [self[place] for place in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        end = self._starts[index + 1] if index + 1 < len(self) else len(self._owners)
        return self._document(int(self._steps[index]), slice(int(self._starts[index]), int(end)))

    def __iter__(self) -> Iterator[Document]:
        return (self[index] for index in range(len(self)))

    def _document(self, step: int, part: slice) -> Document:
        document: dict[str, Any] = {"step": step}
        lists: dict[tuple[str, str, str], dict[int, Any]] = {}
        for owner, value in zip(self._owners[part].tolist(), self._values[part].tolist(), strict=True):
            place = self._places[owner]
            entry = document.setdefault(place.section, {}).setdefault(place.name, {})
            if place.source:
                document.setdefault("gradients_source", place.source)
            if place.index >= 0:
                lists.setdefault((place.section, place.name, place.field), {})[place.index] = encode_float(value)
            elif place.field == "histogram":
                entry[place.field] = self._bins[int(value)].document()
            else:
                entry[place.field] = int(value) if place.field in _COUNTS and not isnan(value) else encode_float(value)
        for (section, name, field), items in lists.items():
            if len(items) == max(items) + 1:
                document[section][name][field] = [items[index] for index in range(len(items))]
        return document


class LayerStatistics:
    """Collects statistics of tensors and layers value by value, in the order of the log."""

    def __init__(self) -> None:
        """Start without values."""
        self._places: dict[str, CheckpointPlace | None] = {}
        self._targets: dict[CheckpointPlace, int] = {}
        self._steps, self._owners, self._values = array("q"), array("q"), array("d")
        self._bins: list[Bins] = []
        self._left: dict[str, None] = {}
        self._negative = self._unread = 0
        self._worst = 0.0
        self._estimated = self._normless = 0

    def __bool__(self) -> bool:
        """Tell whether any value was collected that a checkpoint can hold."""
        return bool(self._steps)

    def take(self, step: int, name: str, value: float) -> bool:
        """Add a scalar if its name is that of a statistic of one tensor or layer.

        Args:
            step: Finished update attempts.
            name: Its name in the log.
            value: A number; NaN: recorded as NaN.

        Returns:
            Whether it is such a statistic, even if a checkpoint has no field for it.
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
        """Add many scalars of one name in the order of the log, as `take` adds each.

        Args:
            name: Their name in the log.
            steps: Shape (N,); finished update attempts.
            values: Shape (N,).

        Returns:
            Whether the name is that of a statistic of one tensor or layer.
        """
        place = place_of(name)
        if place is None:
            return False
        if place.index >= 0 or place.convert or place.zero_is_absent or not place.field:
            for step, value in zip(steps.tolist(), values.tolist(), strict=True):
                self.take(step, name, value)
            return True
        valid = (steps >= 0) & (steps <= MAX_STEP)
        self._extend(place, steps[valid], values[valid])
        return True

    def take_histogram(
        self, step: int, name: str, edges: Sequence[float], counts: Sequence[float], moments: ValueSums | None = None
    ) -> bool:
        """Add the histogram of a tensor's or layer's values.

        Args:
            step: Finished update attempts.
            name: Its name in the log.
            edges: n + 1 edges.
            counts: n counts.
            moments: Sums over the values, where the log has them.

        Returns:
            Whether the name is that of a tensor or layer.
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
            self._bins.append(bins)
            if "histogram" in _FIELDS.get(place.section, ()):
                self._add(step, _at(place, "histogram"), len(self._bins) - 1)
            if moments is None and place.section in NORMS:
                self._estimated += "norm" in known
                self._normless += "norm" not in known
                self._worst = max(self._worst, worst)
        fields = _FIELDS.get(place.section, set())
        for statistic, value in (known | (moments.statistics() if moments else {})).items():
            field = NORMS.get(place.section, "") if statistic == "norm" else statistic
            if field not in fields:
                continue
            for index, number in enumerate(value) if isinstance(value, list) else ((-1, value),):
                self._add(step, _at(place, field, index), number)
        return True

    def put(self, step: int, section: str, name: str, field: str, value: float, *, index: int = -1) -> None:
        """Add a value whose place is known, such as ("gradients", "fc1.weight", "norm"); a value in a list has an index."""
        if index < MAX_ENTRIES:
            self._add(step, CheckpointPlace(section, without_wrappers(name), field, index), value)

    def extend(self, section: str, field: str, names: Sequence[str], steps: Whole, owners: Whole, values: Floats) -> None:
        """Add many values of one field.

        Args:
            section: Section of a checkpoint.
            field: Its field.
            names: Tensors or layers.
            steps: Shape (N,); finished update attempts.
            owners: Shape (N,); index of each value's name in `names`.
            values: Shape (N,).
        """
        order = np.argsort(owners, kind="stable")
        bounds = np.searchsorted(owners[order], np.arange(len(names) + 1))
        for name, start, end in zip(names, bounds[:-1], bounds[1:], strict=True):
            rows = order[start:end]
            self._extend(CheckpointPlace(section, without_wrappers(name), field), steps[rows], values[rows])

    def documents(self) -> Sequence[Document]:
        """Return the checkpoints in step order, each built on access."""
        # Sort by step, and drop what a later part of the log replaced.
        steps, owners, values = np.array(self._steps), np.array(self._owners), np.array(self._values)
        order = np.lexsort((steps, owners))  # equal ones stay in the order of the log
        same = (np.diff(owners[order]) == 0) & (np.diff(steps[order]) == 0)
        older, newer = order[:-1][same], order[1:][same]
        differs = ~((values[older] == values[newer]) | (np.isnan(values[older]) & np.isnan(values[newer])))
        valid = np.ones(len(steps), bool)
        valid[older] = False
        changed = np.zeros(len(steps), bool)
        changed[newer[differs]] = True
        for owner in np.unique(owners[changed]).tolist():
            rows = np.flatnonzero(owners == owner)
            valid[rows] &= ~_replaced(steps[rows], changed[rows])
        chosen = np.flatnonzero(valid)
        chosen = chosen[np.argsort(steps[chosen], kind="stable")]
        return Checkpoints(list(self._targets), self._bins, steps[chosen], owners[chosen], values[chosen])

    def tensors(self) -> dict[str, TensorFacts]:
        """Return depth, kind and module of the tensors from their names, for the tensor table of `run.json`."""
        return tensor_facts(dict.fromkeys(place.name for place in self._targets if place.section in NORMS))

    def notes(self) -> list[str]:
        """Return notes on the use of the collected statistics."""
        notes = []
        if self:
            notes.append(f"statistics of single tensors and layers made {len(self.documents()):,} checkpoints: {self._summary()}")
        if self._left:
            names = list_names(list(self._left), max_names=3)
            notes.append(f"{len(self._left):,} statistics of layers have no field in a checkpoint: {names}")
        if self._estimated or self._normless:
            note = f"histograms without the sums of their values: of {self._estimated:,} the norm was taken from the bins"
            note += f", at most {self._worst:.0%} off" if self._estimated else ""
            notes.append(note + (f"; of {self._normless:,} the bins are too wide for one" if self._normless else ""))
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

    def _extend(self, place: CheckpointPlace, steps: Whole, values: Floats) -> None:
        if place.field not in _SIGNED:
            negative = values < 0
            self._negative += int(negative.sum())
            steps, values = steps[~negative], values[~negative]
        target = self._targets.setdefault(place, len(self._targets))
        self._steps.frombytes(np.ascontiguousarray(steps, np.int64).tobytes())
        self._owners.frombytes(np.full(len(steps), target, np.int64).tobytes())
        self._values.frombytes(np.ascontiguousarray(values, np.float64).tobytes())

    def _add(self, step: int, place: CheckpointPlace, value: float) -> None:
        if value < 0 and place.field not in _SIGNED:
            self._negative += 1
            return
        self._steps.append(step)
        self._owners.append(self._targets.setdefault(place, len(self._targets)))
        self._values.append(value)


def _replaced(steps: Whole, changed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return a mask of a statistic's values at or above a step whose value changes later in the log."""
    back = np.where(changed, steps, MAX_STEP + 1)
    lowest_after = np.append(np.minimum.accumulate(back[::-1])[::-1][1:], MAX_STEP + 1)
    return np.asarray(lowest_after <= steps)


def _at(place: CheckpointPlace, field: str, index: int = -1) -> CheckpointPlace:
    return CheckpointPlace(place.section, place.name, field, index, place.source)
