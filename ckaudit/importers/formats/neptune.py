"""Neptune's exporter: Parquet files with one row per attribute, or per point of a series, of one or several runs.

A point has `step` as a decimal, `timestamp` in UTC, and `float_value`; a point whose step is not an integer is left out. A point
with a time and no value was NaN: the exporter writes NaN in this way, and omits points without value and time. Single values
under `sys/name` and similar paths are facts of the run, others are its configuration.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import UNSET, Struct
from numpy.typing import NDArray

from ckaudit.errors import UnreadableError
from ckaudit.importers.formats.parquetfile import MAGIC, coded, columns_of, numbers_of, opened, texts_of
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import list_names, resolve_columns, writable
from ckaudit.importers.notes_on_names import note_on_taken, notes_on_left_out
from ckaudit.importers.tables.curves import Curves, imported_run
from ckaudit.importers.tables.field_map import Names, name_of
from ckaudit.importers.tables.numbers import NO_STEP, Numbers, aligned, steps_from

NAME = "Neptune exporter Parquet"
GENERIC = False
MAX_FILES = 10_000
MAX_CONFIG = 1000

_COLUMNS = ("run_id", "attribute_path", "attribute_type", "step", "timestamp", "float_value", "int_value", "string_value")
_MARKS = (b"attribute_path", b"attribute_type", b"float_value")
_NAMES: Names = {}
_SERIES = "float_series"
_SINGLE = {"float": "float_value", "int": "int_value", "string": "string_value"}
OF_NEPTUNE = ("sys/", "monitoring/", "source_code/")


class _Points(Struct):
    """The contents of the files on one run, in their order."""

    single: dict[str, Any]
    series: dict[str, list[tuple[NDArray[np.int64], Numbers, Numbers]]]
    fractions: int = 0


def detects(source: Source) -> bool:
    """Tell whether a file has the column names of an export in its footer, or a folder holds such a file."""
    if source.is_folder:
        return any(_is_export(file) for file in _files(source, max_files=1))
    return _is_export(source)


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read all runs in a file, or in all files of a folder.

    Raises:
        UnreadableError: Where a file is broken, or no series has a known name.
        UsageError: Where `columns` names something that does not exist.
    """
    runs: dict[str, _Points] = {}
    for file in _files(source, max_files=MAX_FILES) if source.is_folder else [source]:
        if _is_export(file):
            _take(file, runs)
    known = [name for name, points in runs.items() if _chosen(points, {})] if not columns else list(runs)
    if not known:
        paths = list(dict.fromkeys(path for points in runs.values() for path in points.series))
        raise UnreadableError(
            f"{source.shown} holds {len(runs):,} runs, but none of their series has a name that is known: {list_names(paths)}",
            hint="Name them, as in --map loss=ATTRIBUTE/PATH.",
        )
    return [_imported(name if len(known) > 1 else "", runs[name], columns, source.shown, name) for name in known]


def _is_export(source: Source) -> bool:
    return source.head.startswith(MAGIC) and all(mark in source.data[-(2**16) :] for mark in _MARKS)


def _files(source: Source, *, max_files: int) -> Iterator[Source]:
    """Yield the Parquet files in a folder and in its project folders."""
    paths = (path for pattern in ("*.parquet", "*/*.parquet") for path in sorted(source.path.glob(pattern)))
    for path, _ in zip(paths, range(max_files), strict=False):
        file = source.inside(path.relative_to(source.path).as_posix())
        if file is not None and not file.is_folder:
            yield file


def _take(source: Source, runs: dict[str, _Points]) -> None:
    """Add the contents of a file to its runs."""
    table = columns_of(opened(source), _COLUMNS, source.shown)
    names, paths = coded(table["run_id"]), coded(table["attribute_path"])
    kinds = coded(table["attribute_type"])
    values, times = numbers_of(table["float_value"]), numbers_of(table["timestamp"])
    values = Numbers(values.values, values.recorded | times.recorded)
    places = numbers_of(table["step"])
    steps = steps_from(places)
    for run, path, rows in _groups(names, paths):
        points = runs.setdefault(run, _Points({}, {}))
        kind = kinds[1][kinds[0][rows[0]]] if kinds[0][rows[0]] >= 0 else ""
        if kind == _SERIES:
            points.fractions += int(np.count_nonzero(steps[rows] == NO_STEP))
            part = [column.at(rows) for column in (values, times)]
            points.series.setdefault(path, []).append((steps[rows], part[0], part[1]))
        elif kind in _SINGLE:
            points.single[path] = texts_of(table[_SINGLE[kind]].slice(int(rows[0]), 1))[0]


def _groups(
    runs: tuple[NDArray[np.int64], list[Any]], paths: tuple[NDArray[np.int64], list[Any]]
) -> Iterator[tuple[str, str, NDArray[np.int64]]]:
    """Yield run, path and rows of each attribute; the rows stay in order."""
    keys = np.where((runs[0] < 0) | (paths[0] < 0), -1, runs[0] * max(1, len(paths[1])) + paths[0])
    order = np.argsort(keys, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
        if len(rows) and keys[rows[0]] >= 0:
            yield str(runs[1][runs[0][rows[0]]]), str(paths[1][paths[0][rows[0]]]), rows


def _chosen(points: _Points, columns: Mapping[str, str]) -> dict[str, str]:
    """Return the path for each catalogue name: the path that the user mapped, else the known path with most points."""
    paths = [path for path in points.series if not path.startswith(OF_NEPTUNE)]
    chosen: dict[str, str] = {}
    for path in sorted(paths, key=lambda path: -sum(len(steps) for steps, _, _ in points.series[path])):
        if (name := name_of(path, _NAMES)) and name not in ("step", "time"):
            chosen.setdefault(name, path)
    names = list(points.series)
    wanted = {name: path for name, path in columns.items() if path in points.series}
    return chosen | {name: names[position] for name, position in resolve_columns(wanted, names).items() if name != "step"}


def _imported(name: str, points: _Points, columns: Mapping[str, str], shown: str, own: str) -> Imported:
    chosen = _chosen(points, columns)
    joined_up = {label: _whole(points.series[path]) for label, path in chosen.items()}
    clock = next((label for label in ("train_loss_raw", *joined_up) if label in joined_up), None)
    series = {label: (steps, values) for label, (steps, values, _) in joined_up.items()}
    if clock is not None:
        series["time"] = (joined_up[clock][0], joined_up[clock][2])
    steps, aside = aligned(series)
    left = [path for path in points.series if path not in chosen.values() and not path.startswith(OF_NEPTUNE)]
    notes = [*note_on_taken(chosen), *notes_on_left_out(left)]
    if points.fractions:
        notes.append(f"{points.fractions:,} points have no whole step of 0 or more and were left out")
    if nans := sum(int(np.isnan(aside[label].values[aside[label].recorded]).sum()) for label in chosen):
        notes.append(f"{nans:,} points have a time and no value: read as NaN, which the exporter writes so")
    imported = imported_run(Curves(steps, aside, notes), shown, NAME, size=f"{len(points.series):,} series", name=writable(name))
    _describe(imported, points, own)
    return imported


def _whole(parts: Sequence[tuple[NDArray[np.int64], Numbers, Numbers]]) -> tuple[NDArray[np.int64], Numbers, Numbers]:
    """Join the parts of a series from several files."""
    steps, values, times = zip(*parts, strict=True)
    return np.concatenate(steps), _end_to_end(values), _end_to_end(times)


def _end_to_end(columns: Sequence[Numbers]) -> Numbers:
    return Numbers(np.concatenate([column.values for column in columns]), np.concatenate([column.recorded for column in columns]))


def _describe(imported: Imported, points: _Points, own: str) -> None:
    """Write the run's name and settings into its manifest."""
    name = points.single.get("sys/name")
    imported.manifest.name = writable(name if isinstance(name, str) and name else own) or UNSET
    config = {
        writable(path): writable(value) if isinstance(value, str) else value
        for path, value in points.single.items()
        if value is not None and not path.startswith(OF_NEPTUNE)
    }
    if config:
        imported.manifest.config = dict(list(config.items())[:MAX_CONFIG])
