"""Aim's repository: the folder `.aim`, in which each run has two RocksDB databases, one of settings and one of series.

A key is a path of UTF-8 names and integers, each ended by a byte that never occurs in UTF-8. A value begins with its type. A
series is identified by its context and its name. It keeps values, steps and times as columns under a hash of the step, so a step
that is logged again replaces the earlier entry. The older layout, still used for images and texts, has the step itself in place
of the hash.
"""

import struct
from array import array
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from msgspec import Struct, field

from ckaudit.contract.schema.manifest import Manifest, Session
from ckaudit.errors import UnreadableError
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import list_names, writable
from ckaudit.importers.tables.numbers import MAX_STEP
from ckaudit.importers.trackers.points import NO_TIME, Floats, LoggedSeries, PointCollector, Whole
from ckaudit.importers.trackers.rocksdb import is_database, open_database
from ckaudit.importers.trackers.sqlite import opened, tables
from ckaudit.importers.trackers.tracked import TrackedRun, number_equal_names, runs_of, write_config

NAME = "Aim repository"
GENERIC = False
SEARCHES = True
MAX_RUNS = 1000
MAX_DEPTH = 12

_FOLDER, _META, _SERIES, _NAMES = ".aim", "meta/chunks", "seqs/chunks", "run_metadata.sqlite"
_END = 0xFE
_NUMBER = struct.Struct(">q")
_BOOL, _INT, _FLOAT, _STRING, _ARRAY, _OBJECT = 1, 2, 3, 4, 6, 7
_COLUMNS = ("val", "step", "time")
_OF_MACHINE, _OWN, _SUBSET = "__system__", "__", "subset"
_UNNAMED = "Run: "
_NO_EXPERIMENT = "default"
Path = list[str | int]


class _Column(Struct):
    """One column of a series: a number for each hash of a step."""

    hashes: "array[int]" = field(default_factory=lambda: array("q"))
    numbers: "array[float]" = field(default_factory=lambda: array("d"))


class _Array(dict[Any, Any]):
    """A list while its members are read."""


def detects(source: Source) -> bool:
    """Tell whether a folder, or its subfolder `.aim`, holds the databases of runs."""
    return _repository(source) is not None


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read all runs.

    Raises:
        UnreadableError: Where no run can be read, or none logged a series with a known name.
        UsageError: Where `columns` names something that does not exist.
    """
    repository = _repository(source) or source
    chunks = repository.inside(_META)
    runs = [chunk for chunk in (chunks.folders() if chunks is not None else ()) if is_database(chunk)]
    names, tracked, broken = _names(repository), list[TrackedRun](), list[UnreadableError]()
    for chunk in runs[:MAX_RUNS]:
        try:
            tracked.append(_tracked(repository, chunk, names.get(chunk.path.name, "")))
        except UnreadableError as error:
            broken.append(error)
    if not tracked:
        raise broken[0] if broken else UnreadableError(f"{source.shown} is an {NAME}, but no run is in it", hint="Name another.")
    tracked.sort(key=_start)
    number_equal_names(tracked)
    tracked[0].notes += [f"a run could not be read: {error}" for error in broken]
    if len(runs) > MAX_RUNS:
        tracked[0].notes.append(f"only the first {MAX_RUNS:,} of {len(runs):,} runs were read")
    return runs_of(tracked, columns, source.shown, NAME)


def _repository(source: Source) -> Source | None:
    """Return the folder of the databases: the source or a folder inside it."""
    folders = (source, source.inside(_FOLDER)) if source.is_folder else ()
    return next((folder for folder in folders if folder is not None and folder.inside(_META) is not None), None)


def _names(repository: Source) -> dict[str, str]:
    """Return the name of each run: its own name, or that of its experiment with the hash of the run."""
    file = repository.inside(_NAMES)
    try:
        if file is None or not {"run", "experiment"} <= {*tables(file)}:
            return {}
        with opened(file) as database:
            rows = database.execute(
                "SELECT run.hash, run.name, experiment.name FROM run LEFT JOIN experiment ON experiment.id = run.experiment_id"
            ).fetchall()
    except UnreadableError:
        return {}
    return {str(run): _name(str(run), str(name or ""), str(experiment or "")) for run, name, experiment in rows}


def _name(run: str, name: str, experiment: str) -> str:
    if name and not name.startswith(_UNNAMED):
        return name
    return f"{experiment}/{run}" if experiment and experiment != _NO_EXPERIMENT else run


def _tracked(repository: Source, chunk: Source, name: str) -> TrackedRun:
    """Return a run.

    Raises:
        UnreadableError: Where no part of it can be read.
    """
    identity = chunk.path.name
    settings, notes = _settings(chunk)
    series, others = dict[str, LoggedSeries](), list[str]()
    folder = repository.inside(f"{_SERIES}/{identity}")
    if folder is not None and is_database(folder):
        series, others = _series(folder, _member(settings, "contexts"), notes)
    if notes and not series:
        raise UnreadableError("; ".join(notes), hint="Copy the repository again, whole.")
    run = TrackedRun(writable(name or identity), series, notes=notes)
    run.manifest = Manifest(schema_version="ck.run.v1", name=run.name)
    _write_times(run, settings.get("end_time"))
    attributes = {key: value for key, value in _member(settings, "attrs").items() if not str(key).startswith(_OWN)}
    write_config(run.manifest, attributes | _member(attributes, "hparams"))
    if run.name != identity:
        run.notes.append(f"its hash is {writable(identity)}")
    if others:
        run.notes.append(f"{list_names(others)} hold no numbers and were left out")
    return run


def _start(run: TrackedRun) -> float:
    """Return the time of the first logged point of a run; 0: unknown."""
    return min((float(series.times[series.times > 0].min(initial=np.inf)) for series in run.series.values()), default=0.0)


def _write_times(run: TrackedRun, end: Any) -> None:
    """Set the start and the end of the run, where they are known."""
    start = _start(run)
    if 0 < start < np.inf:
        run.manifest.sessions = [Session(start=start)]
        if isinstance(end, float) and start <= end < np.inf:
            run.manifest.sessions = [Session(start=start, end=end)]
    if not isinstance(end, float):
        run.notes.append("Aim holds no end of the run: the program was cut off, or still runs")


def _member(tree: Mapping[Any, Any], name: str) -> dict[Any, Any]:
    value = tree.get(name)
    return value if isinstance(value, dict) else {}


# The settings of a run are a tree with one member per key.
def _settings(chunk: Source) -> tuple[dict[Any, Any], list[str]]:
    """Return what Aim holds about a run besides its series, and notes."""
    beginning = _key("meta", "chunks", chunk.path.name)
    database, tree = open_database(chunk, beginning), dict[Any, Any]()
    for key, value in database.entries():
        path = _path(key[len(beginning) :])
        if path is not None and len(path) <= MAX_DEPTH:
            _put(tree, path, _value(value))
    return _whole(tree), database.notes


def _put(tree: dict[Any, Any], path: Path, value: Any) -> None:
    for name in path[:-1]:
        inner = tree.setdefault(name, {})
        if not isinstance(inner, dict):
            return
        tree = inner
    if path:
        tree[path[-1]] = value


def _whole(tree: Any) -> Any:
    """Return a tree with its arrays converted to lists."""
    if isinstance(tree, _Array):
        return [_whole(member) for member in tree.values()]
    return {name: _whole(member) for name, member in tree.items()} if isinstance(tree, dict) else tree


def _value(data: bytes) -> Any:
    """Return a value, or None for a type that settings do not use."""
    kind, content = data[:1], data[1:]
    if kind in (bytes([_ARRAY]), bytes([_OBJECT])):
        return _Array() if kind[0] == _ARRAY else {}
    if kind == bytes([_STRING]):
        return content.decode("utf-8", errors="replace")
    return bool(content[0]) if kind == bytes([_BOOL]) and content else _number(data)


def _number(data: bytes) -> float | int | None:
    """Return a number, or None where the value is not a number."""
    if len(data) == 1 + _NUMBER.size and data[0] in (_INT, _FLOAT):
        number: float = struct.unpack_from("<d" if data[0] == _FLOAT else "<q", data, 1)[0]
        return number
    return None


def _key(*names: str) -> bytes:
    """Return the prefix of all keys below some names."""
    return b"".join(name.encode() + bytes([_END]) for name in names)


def _path(key: bytes) -> Path | None:
    """Return the names and numbers of a key, or None where it is not an Aim key."""
    path: Path = []
    place = 0
    while place < len(key):
        if key[place] == _END:
            end = place + 1 + _NUMBER.size
            if end >= len(key):
                return None
            path.append(_NUMBER.unpack_from(key, place + 1)[0])
        else:
            end = key.find(_END, place)
            if end < 0:
                return None
            path.append(key[place:end].decode("utf-8", errors="replace"))
        place = end + 1
    return path


# The series of a run are columns with one number per key.
def _series(folder: Source, contexts: Mapping[Any, Any], notes: list[str]) -> tuple[dict[str, LoggedSeries], list[str]]:
    """Return the series of numbers by name, and the names of series without numbers; append to the notes."""
    database = open_database(folder, b"seqs\xfe")
    points, others, of_machine = PointCollector(), list[str](), 0
    owners: dict[str, int] = {}
    for context, name, columns in _traces(database.entries()):
        shown = writable("/".join([*_labels(contexts.get(context), name), name]))
        if owners.setdefault(shown, context) != context:
            shown = f"{shown} ({context})"
        if name.startswith(_OF_MACHINE):
            of_machine += 1
        elif (rows := _rows(columns)) is None:
            others.append(shown)
        else:
            points.extend(shown, *(part.tolist() for part in rows))
    notes += database.notes
    if of_machine:
        notes.append(f"{of_machine:,} series of the machine count samples, no updates, and were left out")
    return points.series(by_time=True), others


def _labels(context: Any, name: str) -> Iterator[str]:
    """Yield the labels of a context that do not begin the name, the data subset first; what is not a text is `key=value`."""
    pairs = sorted(context.items(), key=lambda pair: pair[0] != _SUBSET) if isinstance(context, dict) else ()
    for key, value in pairs:
        label = value if isinstance(value, str) else f"{key}={value}"
        if not isinstance(value, dict | list) and not name.startswith((f"{label}_", f"{label}/")):
            yield label


def _traces(entries: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[int, str, dict[str, _Column]]]:
    """Yield context, name and columns of each series; without a column of values, the series holds no numbers."""
    columns_by_series: dict[tuple[bool, int, str], dict[str, _Column]] = {}
    beginning, column = b"", None
    tail = 2 + _NUMBER.size
    for key, value in entries:
        if key[:-tail] != beginning:
            beginning = key[:-tail]
            column = _column(columns_by_series, _path(beginning))
        if column is not None and (number := _number(value)) is not None:
            column.hashes.append(_NUMBER.unpack_from(key, len(key) - tail + 1)[0])
            column.numbers.append(number)
    for (is_old, context, name), columns in columns_by_series.items():
        if is_old and "val" in columns:
            columns["step"] = _Column(columns["val"].hashes, array("d", columns["val"].hashes))
        yield context, name, columns


def _column(columns_by_series: dict[tuple[bool, int, str], dict[str, _Column]], path: Path | None) -> _Column | None:
    """Return the column at a path, or None where the path leads to none that is read."""
    is_old = path is not None and path[1:2] == ["chunks"]
    rest = [] if path is None else path[3 if is_old else 4 :]
    if len(rest) != 3 or rest[2] not in _COLUMNS:  # context, name, column
        return None
    context, name, column = rest
    if not isinstance(context, int) or not isinstance(name, str):
        return None
    return columns_by_series.setdefault((is_old, context, name), {}).setdefault(str(column), _Column())


def _rows(columns: Mapping[str, _Column]) -> tuple[Whole, Floats, Floats] | None:
    """Return steps, values and times of a series, or None where it has no value at a step."""
    values = columns.get("val", _Column())
    hashes, numbers = np.array(values.hashes, np.int64), np.array(values.numbers, np.float64)
    steps, times = (_found(columns.get(name, _Column()), hashes) for name in ("step", "time"))
    held = (steps >= -MAX_STEP) & (steps <= MAX_STEP)
    return (steps[held].astype(np.int64), numbers[held], times[held]) if held.any() else None


def _found(column: _Column, hashes: Whole) -> Floats:
    """Return the number for each hash, NaN where there is none."""
    own, numbers = np.array(column.hashes, np.int64), np.array(column.numbers, np.float64)
    order = np.argsort(own)
    places = np.searchsorted(own[order], hashes)
    known = places < len(own)
    known[known] = own[order][places[known]] == hashes[known]
    values = np.full(len(hashes), NO_TIME)
    values[known] = numbers[order][places[known]]
    return values
