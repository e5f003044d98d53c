"""Rows of checkpoints gathered to series, one value at a time as files are read; only plain arrays are kept."""

import struct
from array import array
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from typing import Any, get_args
from zlib import crc32

import numpy as np
from msgspec import UNSET

from ckaudit.contract.io.columns import Column
from ckaudit.contract.io.grids import unpack
from ckaudit.contract.schema.checkpoint import HeadKind
from ckaudit.run.paths import WORDS
from ckaudit.run.run import Grids
from ckaudit.run.series import Floats, Mask, Series, empty

Labels = tuple[str, ...]


class Collector:
    """Gathers one path over all checkpoints."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._is_word = path in WORDS
        self._labels: list[Labels] = []
        self._rows: list[bytes] = []
        self._masks: list[bytes | None] = []
        self._steps: array[int] = array("q")

    def add(self, step: int, labels: Labels, values: Iterable[Any]) -> None:
        """Add the values of one checkpoint; UNSET and None are not recorded, words are numbers."""
        if self._labels and labels is not self._labels[-1] and labels == self._labels[-1]:
            labels = self._labels[-1]
        if type(values) is not list and type(values) is not tuple:
            values = tuple(values)
        mask, pack = None, _packer(len(values)).pack
        try:
            row = pack(*values)
        except struct.error:
            row = pack(*map(_WORDS.__getitem__ if self._is_word else _number, values))
            if UNSET in values or None in values:
                mask = bytes(value is not UNSET and value is not None for value in values)
        self._steps.append(step)
        self._labels.append(labels)
        self._rows.append(row)
        self._masks.append(mask)

    def series(self, unit: str) -> Series:
        """Return everything gathered, in the order of steps."""
        if not self._rows:
            return empty(self.path, unit)
        labels = _union(self._labels)
        values, recorded = self._alike(labels) or self._spread(labels)
        steps = np.array(self._steps, np.int64)
        if (steps[1:] < steps[:-1]).any():
            order = np.argsort(steps, kind="stable")
            steps, values, recorded = steps[order], values[order], recorded[order]
        return Series(self.path, unit, steps, labels, values, recorded)

    def _alike(self, labels: Labels) -> tuple[Floats, Mask] | None:
        """Return values and what is recorded, where every row has all labels in this order; else None."""
        if any(names != labels for names in {id(names): names for names in self._labels}.values()):
            return None
        shape = len(self._rows), len(labels)
        values = np.frombuffer(bytearray().join(self._rows)).reshape(shape)
        if not any(self._masks):
            return values, np.ones(shape, bool)
        every = b"\1" * len(labels)
        recorded = np.frombuffer(b"".join(every if mask is None else mask for mask in self._masks), bool).reshape(shape)
        values[~recorded] = np.nan
        return values, recorded

    def _spread(self, labels: Labels) -> tuple[Floats, Mask]:
        """Return values and what is recorded, with each row's cells under their labels."""
        values = np.full((len(self._rows), len(labels)), np.nan)
        recorded = np.zeros(values.shape, bool)
        place = {label: column for column, label in enumerate(labels)}
        columns: dict[int, Any] = {}
        for row, (names, cells, mask) in enumerate(zip(self._labels, self._rows, self._masks, strict=True)):
            if id(names) not in columns:
                columns[id(names)] = slice(None) if names == labels else [place[name] for name in names]
            index = columns[id(names)]
            values[row, index] = np.frombuffer(cells) if cells else []
            recorded[row, index] = True if mask is None else np.frombuffer(mask, bool)
        values[~recorded] = np.nan
        return values, recorded


class GridCollector:
    """Gathers the matrices of one path over all checkpoints."""

    def __init__(self) -> None:
        self._found: list[tuple[int, str, Floats]] = []

    def add(self, step: int, labels: Labels, values: Iterable[Any]) -> None:
        """Add the matrices of one checkpoint, packed or nested; UNSET, or one that is no rectangle, is not recorded."""
        for label, value in zip(labels, values, strict=True):
            if value is UNSET:
                continue
            with suppress(ValueError):  # what is wrong with it, validate tells
                self._found.append((step, label, unpack(value)))

    def grids(self) -> Grids:
        """Return everything gathered, in the order of steps."""
        found = sorted(self._found, key=lambda each: each[0])
        steps, labels, values = zip(*found, strict=True) if found else ((), (), ())
        return Grids(steps, labels, values)


@lru_cache(maxsize=256)
def _packer(count: int) -> struct.Struct:
    """Return what packs so many numbers: twice as fast as `array`, and it refuses words as `array` does."""
    return struct.Struct(f"{count}d")


def _union(rows: list[Labels]) -> Labels:
    distinct = {id(labels): labels for labels in rows}
    return tuple(dict.fromkeys(chain.from_iterable(distinct.values())))


def _number(value: Any) -> float:
    """Return a cell as a float; the contract's words for numbers are what float() reads, others have places."""
    if isinstance(value, str) and value in _PLACES:
        return _PLACES[value]
    return float("nan") if value is UNSET or value is None else float(value)


def flatten_lists(names: Labels, column: Iterable[Any], part: str) -> tuple[Labels, list[Any]]:
    """Turn one list per layer into one flat row.

    >>> flatten_lists(("layer.0",), [[1.5, 2.5]], "head")
    (('layer.0/head.0', 'layer.0/head.1'), [1.5, 2.5])
    """
    lists = [() if value is UNSET else value for value in column]
    return _flat_labels(names, tuple(map(len, lists)), part), [*chain.from_iterable(lists)]


@lru_cache(maxsize=64)
def _flat_labels(names: Labels, lengths: tuple[int, ...], part: str) -> Labels:
    return tuple(f"{name}/{part}.{index}" for name, length in zip(names, lengths, strict=True) for index in range(length))


def cells_of(names: Labels, columns: Mapping[str, Column], field: str) -> tuple[Labels, Iterable[Any]]:
    """Return labels and values of one field of a section, from the names of its members and its columns."""
    column = columns.get(field)
    if column is None:
        return (), ()
    part = _PARTS.get(field, "head" if field.endswith("_per_head") else None)
    return (names, column) if part is None else flatten_lists(names, column, part)


class _Words(dict[Any, float]):
    """Words as numbers: the place in their list, else a checksum, so that two are equal where the words are."""

    def __missing__(self, word: Any) -> float:
        number = float(crc32(str(word).encode()))
        self[word] = number
        return number


DTYPES = ("float32", "bfloat16", "float16", "float64", "float8_e4m3fn", "float8_e5m2")
"""Element types in the order of the numbers that they are read as."""

OPTIMIZERS = (
    "SGD",
    "Adam",
    "AdamW",
    "NAdam",
    "RAdam",
    "Adamax",
    "RMSprop",
    "Adagrad",
    "Adadelta",
    "Adafactor",
    "FusedAdam",
    "AdamW8bit",
)
"""Optimizers in the order of the numbers that they are read as: the first goes by the gradient as it is, all others divide it."""

_PLACES = {word: float(place) for place, word in enumerate(get_args(HeadKind))}
_LISTED = {word: float(place) for words in (DTYPES, OPTIMIZERS) for place, word in enumerate(words)}
_WORDS = _Words({**_PLACES, **_LISTED, UNSET: np.nan, None: np.nan})
_PARTS = {"percentiles": "percentile", "counts": "expert", "router_probability": "expert", "shape": "dimension"}
