"""Columns of numbers from checkpoints, by paths such as "gradients.*.norm"; decoders skip everything that no path asks for."""

import struct
import weakref
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from itertools import chain
from types import UnionType
from typing import IO, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints
from zlib import crc32

import msgspec
import numpy as np
from msgspec import UNSET, Struct, UnsetType

from ckaudit.contract.io.columns import Column
from ckaudit.contract.io.grids import unpack
from ckaudit.contract.schema.checkpoint import Checkpoint, HeadKind
from ckaudit.contract.unknown_fields import with_open_words
from ckaudit.run.memory import array_on_disk, scratch_file
from ckaudit.run.run import Grids
from ckaudit.run.scalars import FILLED
from ckaudit.run.series import Floats, Mask, Series, empty

WEIGHT_GRID = "weights.*.sampled_grid_32x32"
GRIDS = ("attention.*.sampled_qk_grid_32x32_per_head", "attention.*.sampled_qk_grid_32x32", WEIGHT_GRID)
"""Matrices that a metric may ask for."""
WEIGHT_SAMPLES = frozenset({WEIGHT_GRID, "weights.*.percentiles"})
"""Samples that show how far weights have moved where no deltas are measured; they are most of the text of some writers' files."""
WORDS = (
    "attention.*.kind_per_head",
    "weights.*.dtype",
    "activations.*.dtype",
    "rank_facts.parameter_hash",
    "rank_facts.data_hash",
    "optimizer.name",
    "loss_function.function",
)
"""Fields that hold words. A word of a known list is read as its index there, any other as a checksum."""
NAMES = ("optimizer.trainable_without_optimizer", "optimizer.written")
"""Fields that hold lists of names. Each becomes a column with their count, and a column of ones per name."""

GROUPS = "optimizer.groups"
"""The learning rate of each parameter group of a checkpoint: a column per group, or a single column."""

BOX = ("history.gradient_norms.*",)
"""Paths into the black boxes. Each step of a box becomes a row, whichever checkpoint holds it."""

Labels = tuple[str, ...]


@cache
def fields(kind: type[Struct]) -> dict[str, Any]:
    """Return the fields of a type with their types, constraints included."""
    return get_type_hints(kind, include_extras=True)


def struct_inside(hint: Any) -> type[Struct] | None:
    """Return the struct type inside an optional, annotated or mapped type; None if there is none."""
    origin = get_origin(hint)
    if origin is Annotated:
        return struct_inside(get_args(hint)[0])
    if origin in (Union, UnionType):
        return next((inside for part in get_args(hint) if part is not UnsetType and (inside := struct_inside(part))), None)
    if origin is dict or origin is list:
        return struct_inside(get_args(hint)[-1])
    return hint if isinstance(hint, type) and issubclass(hint, Struct) else None


def is_mapping(hint: Any) -> bool:
    """Tell whether a type is a mapping from names, also if it is optional or annotated."""
    origin = get_origin(hint)
    if origin is Annotated:
        return is_mapping(get_args(hint)[0])
    if origin in (Union, UnionType):
        return any(is_mapping(part) for part in get_args(hint))
    return origin is dict


def is_numeric(hint: Any) -> bool:
    """Tell whether a type is a number or a flat list of numbers."""
    origin = get_origin(hint)
    if origin is Annotated:
        return is_numeric(get_args(hint)[0])
    if origin in (Union, UnionType):
        parts = [part for part in get_args(hint) if part is not UnsetType and get_origin(part) is not Literal]
        return bool(parts) and all(is_numeric(part) for part in parts)
    if origin is list:
        return is_numeric(get_args(hint)[0]) and get_origin(get_args(hint)[0]) is not list
    return hint in (int, float, bool)


@cache
def every_path() -> tuple[str, ...]:
    """Return the path of every number in a checkpoint except grids, histograms and the black box.

    Paths under `rank_facts` are read from the per-rank files, a column per rank.
    """
    return tuple(_paths())


def _paths() -> Iterator[str]:
    for name, hint in fields(Checkpoint).items():
        inner = struct_inside(hint)
        if name in ("history", "step", "session", "rank"):
            continue
        if inner is None:
            if is_mapping(hint):
                yield f"{name}.*"
            elif is_numeric(hint):
                yield name
            continue
        middle = ".*" if is_mapping(hint) else ""
        yield from (f"{name}{middle}.{field}" for field, part in fields(inner).items() if is_numeric(part))


@cache
def decoder(paths: frozenset[str]) -> msgspec.json.Decoder[Any]:
    """Return a decoder of checkpoints that keeps only the given paths and the fields that identify a file."""
    wanted: dict[str, set[str]] = {}
    for path in (*paths, *FILLED):
        section, _, rest = path.partition(".")
        wanted.setdefault(section, set()).add(rest.removeprefix("*.").removesuffix(".*"))
        if path in BOX:
            wanted[section].add("steps")
    hints = fields(with_open_words(Checkpoint))
    members: list[Any] = [("schema_version", hints["schema_version"]), ("step", hints["step"])]
    members += [(name, hints[name], UNSET) for name in ("session", "rank", "time", "triggers", "event_step")]
    members += [(name, _narrow(hints[name], inner), UNSET) for name, inner in wanted.items() if name in hints]
    return msgspec.json.Decoder(msgspec.defstruct("Projection", members, kw_only=True, gc=False))


def _narrow(hint: Any, wanted: set[str]) -> Any:
    inner = struct_inside(hint)
    if inner is None:
        return hint
    hints = fields(inner)
    narrowed = msgspec.defstruct(
        f"Some{inner.__name__}", [(name, hints[name], UNSET) for name in hints if name in wanted], kw_only=True, gc=False
    )
    return (dict[str, narrowed] if is_mapping(hint) else narrowed) | UnsetType  # type: ignore[valid-type]


def unknown_paths(paths: Iterable[str]) -> list[str]:
    """Return those of `paths` that no checkpoint can hold."""
    known = {*every_path(), *GRIDS, *WORDS, *NAMES, GROUPS, *BOX}
    return [path for path in paths if path not in known]


class ColumnCollector:
    """Gathers one path over all checkpoints.

    Attributes:
        path: The path.
        size: Bytes of the values in memory.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._is_word = path in WORDS
        self._labels: list[Labels] = []
        self._rows: list[bytes] = []
        self._masks: list[bytes | None] = []
        self._steps: array[int] = array("q")
        self._file: IO[bytes] | None = None
        self.size = 0

    def add(self, step: int, labels: Labels, values: Iterable[Any]) -> None:
        """Add the values of one checkpoint; UNSET and None count as not recorded, words become numbers."""
        if self._labels and labels is not self._labels[-1] and labels == self._labels[-1]:
            labels = self._labels[-1]
        if type(values) is not list and type(values) is not tuple:
            values = tuple(values)
        row, mask = _NOTHING if len(values) == 1 and values[0] is UNSET else self._packed(values)
        self._steps.append(step)
        self._labels.append(labels)
        self._rows.append(row)
        self._masks.append(mask)
        self.size += len(row)

    def _packed(self, values: list[Any] | tuple[Any, ...]) -> tuple[bytes, bytes | None]:
        """Return the packed values and the mask of recorded ones; a mask of None means that all are recorded."""
        pack = _packer(len(values)).pack
        try:  # the first word shows that the whole row holds words
            if not (self._is_word and values and type(values[0]) is str):
                return pack(*values), None
        except struct.error:
            pass
        row = pack(*map(_WORDS.__getitem__ if self._is_word else _number, values))
        if UNSET in values or None in values:
            return row, bytes(value is not UNSET and value is not None for value in values)
        return row, None

    def move_to_disk(self) -> None:
        """Move the rows in memory to a file."""
        if self._file is None:
            self._file = scratch_file()
            weakref.finalize(self, self._file.close)
        self._file.writelines(self._rows)
        self._rows.clear()
        self.size = 0

    def series(self, unit: str) -> Series:
        """Return everything gathered, sorted by step."""
        if not self._labels:
            return empty(self.path, unit)
        if self._file is not None:
            self.move_to_disk()
        distinct = {id(labels): labels for labels in self._labels}
        labels = tuple(dict.fromkeys(chain.from_iterable(distinct.values())))
        alike = all(names == labels for names in distinct.values())
        values, recorded = self._alike(labels) if alike else self._spread(labels)
        steps = np.array(self._steps, np.int64)
        if (steps[1:] < steps[:-1]).any():
            order = np.argsort(steps, kind="stable")
            steps, values, recorded = steps[order], values[order], recorded[order]
        return Series(self.path, unit, steps, labels, values, recorded)

    def _alike(self, labels: Labels) -> tuple[Floats, Mask]:
        """Return values and mask where every row has the same labels in this order."""
        shape = len(self._labels), len(labels)
        values = (
            np.frombuffer(bytearray().join(self._rows)).reshape(shape)
            if self._file is None
            else array_on_disk(shape, np.float64, self._file)
        )
        recorded = self._new(shape, bool)
        recorded[:] = True
        for row, mask in enumerate(self._masks):
            if mask is not None:
                recorded[row] = np.frombuffer(mask, bool)
        return values, recorded

    def _spread(self, labels: Labels) -> tuple[Floats, Mask]:
        """Return values and mask, with the cells of each row in the columns of their labels."""
        shape = len(self._labels), len(labels)
        values, recorded = self._new(shape, np.float64), self._new(shape, bool)
        values[:] = np.nan
        place = {label: column for column, label in enumerate(labels)}
        columns: dict[int, Any] = {}
        for row, (names, cells, mask) in enumerate(zip(self._labels, self._cells(), self._masks, strict=True)):
            if id(names) not in columns:
                columns[id(names)] = slice(None) if names == labels else [place[name] for name in names]
            index = columns[id(names)]
            values[row, index] = cells
            recorded[row, index] = True if mask is None else np.frombuffer(mask, bool)
        return values, recorded

    def _new(self, shape: tuple[int, int], dtype: type) -> Any:
        """Return an array of zeros, in memory or on disk like the rows."""
        return np.zeros(shape, dtype) if self._file is None else array_on_disk(shape, dtype)

    def _cells(self) -> Iterator[Floats]:
        """Yield the values of each row."""
        if self._file is None:
            yield from (np.frombuffer(row) if row else np.empty(0) for row in self._rows)
            return
        lengths = np.fromiter(map(len, self._labels), np.int64)
        everything = array_on_disk((int(lengths.sum()),), np.float64, self._file)
        yield from np.split(everything, np.cumsum(lengths)[:-1])


class GridCollector:
    """Gathers the matrices of one path over all checkpoints."""

    def __init__(self) -> None:
        self._grids: list[tuple[int, str, Floats]] = []

    def add(self, step: int, labels: Labels, values: Iterable[Any]) -> None:
        """Add the matrices of one checkpoint, packed or nested; UNSET or non-rectangular ones count as not recorded."""
        for label, value in zip(labels, values, strict=True):
            if value is UNSET:
                continue
            with suppress(ValueError):  # `validate` reports malformed grids
                self._grids.append((step, label, unpack(value)))

    def grids(self) -> Grids:
        """Return everything gathered, sorted by step."""
        samples = sorted(self._grids, key=lambda sample: sample[0])
        steps, labels, values = zip(*samples, strict=True) if samples else ((), (), ())
        return Grids(steps, labels, values)


_NOTHING = struct.pack("d", float("nan")), b"\0"
"""A single cell that is not recorded."""


@lru_cache(maxsize=256)
def _packer(count: int) -> struct.Struct:
    """Return a packer of `count` numbers: it is twice as fast as `array`, and like it refuses words."""
    return struct.Struct(f"{count}d")


def _number(value: Any) -> float:
    """Return a cell as a float; `float` reads the contract's words for numbers, listed words become their index."""
    if isinstance(value, str) and value in _PLACES:
        return _PLACES[value]
    return float("nan") if value is UNSET or value is None else float(value)


def flatten_lists(names: Labels, column: Iterable[Any], part: str) -> tuple[Labels, list[Any]]:
    """Flatten one list per layer into one row.

    >>> flatten_lists(("layer.0",), [[1.5, 2.5]], "head")
    (('layer.0/head.0', 'layer.0/head.1'), [1.5, 2.5])
    """
    lists = [() if value is UNSET else value for value in column]
    return _flat_labels(names, tuple(map(len, lists)), part), [*chain.from_iterable(lists)]


@lru_cache(maxsize=64)
def _flat_labels(names: Labels, lengths: tuple[int, ...], part: str) -> Labels:
    return tuple(f"{name}/{part}.{index}" for name, length in zip(names, lengths, strict=True) for index in range(length))


def cells_of(names: Labels, columns: Mapping[str, Column], field: str) -> tuple[Labels, Iterable[Any]]:
    """Return labels and values of one field of a section."""
    column = columns.get(field)
    if column is None:
        return (), ()
    part = _PARTS.get(field, "head" if field.endswith("_per_head") else None)
    return (names, column) if part is None else flatten_lists(names, column, part)


class _Words(dict[Any, float]):
    """Maps a word to its index in its list, or else to a checksum, so that equal words give equal numbers."""

    def __missing__(self, word: Any) -> float:
        number = float(crc32(str(word).encode()))
        self[word] = number
        return number


DTYPES = ("float32", "bfloat16", "float16", "float64", "float8_e4m3fn", "float8_e5m2")
HALF_TYPES = [DTYPES.index(name) for name in ("bfloat16", "float16")]
"""Numbers of the half-precision element types in `DTYPES`."""

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
"""Optimizers in the order of their numbers. Only the first uses the gradient as it is; all others divide it."""

LOSS_FUNCTIONS = (
    "cross_entropy",
    "nll_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "ctc_loss",
)
"""Loss functions in the order of their numbers."""

_PLACES = {word: float(place) for place, word in enumerate(get_args(HeadKind))}
_LISTED = {word: float(place) for words in (DTYPES, OPTIMIZERS, LOSS_FUNCTIONS) for place, word in enumerate(words)}
_WORDS = _Words({**_PLACES, **_LISTED, UNSET: np.nan, None: np.nan})
_PARTS = {"percentiles": "percentile", "counts": "expert", "router_probability": "expert", "shape": "dimension"}
