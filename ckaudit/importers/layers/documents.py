"""Checkpoints made of single values only when somebody asks for one: so many of them fill far more room than the values."""

from collections.abc import Iterator, Sequence
from math import isnan
from typing import Any, overload

import numpy as np

from ckaudit.contract.numbers import to_word
from ckaudit.importers.imported import Document
from ckaudit.importers.layers.histogram_moments import Bins, Floats, Whole
from ckaudit.importers.layers.names import Place

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
