"""Weights & Biases on disk: a `.wandb` file, the folder of an offline run, or a folder of them; older `wandb-history.jsonl`.

The file holds what the program logged before anything is sent, one record per `log` call. `_step` counts those calls unless the
program passes a step; `_timestamp` is Unix time. A value is JSON text, with NaN and infinities bare or as words; a record only
holds what its call logged. A resumed offline run writes another folder with the same id: the folders of one id are one run. The
wandb package itself reads such files only in a program that is not Python, so they are read here.
"""

import struct
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any
from zlib import crc32

from msgspec import Struct, field

from ckaudit.contract.schema.manifest import Session
from ckaudit.errors import UnreadableError
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.tables.numbers import float_of, number, step_number
from ckaudit.importers.trackers.points import NO_TIME
from ckaudit.importers.trackers.protobuf_messages import message_classes
from ckaudit.importers.trackers.rows import MAX_DEPTH, RowCollector, json_of
from ckaudit.importers.trackers.tracked import TrackedRun, number_equal_names, runs_of, write_config

NAME = "Weights & Biases offline run"
GENERIC = False
SEARCHES = True
MAX_FILES = 2000
MARK = b":W&B"
HEADER = 7
MAX_RECORD = 64 * 2**20
_HISTORY = "wandb-history.jsonl"
_OWN = frozenset({"_step", "_timestamp", "_runtime", "_wandb"})
_BLOCK = 32768
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_PIECE = struct.Struct("<IHB")
_STARTS = {kind: crc32(bytes([kind])) for kind in (_WHOLE, _FIRST, _MIDDLE, _LAST)}
_MESSAGES = {
    "Record": {
        2: ("history", "History"),
        5: ("config", "Config"),
        7: ("stats", "bytes"),
        17: ("run", "Run"),
        18: ("exit", "Exit"),
    },
    "History": {1: ("item", "*Item"), 2: ("step", "Step")},
    "Step": {1: ("num", "int64")},
    "Item": {1: ("key", "bytes"), 2: ("nested_key", "*bytes"), 16: ("value_json", "bytes")},
    "Config": {1: ("update", "*Item")},
    "Run": {
        1: ("run_id", "bytes"),
        4: ("config", "Config"),
        8: ("display_name", "bytes"),
        17: ("start_time", "Time"),
        21: ("git", "Git"),
    },
    "Git": {2: ("commit", "bytes")},
    "Time": {1: ("seconds", "int64"), 2: ("nanos", "int32")},
    "Exit": {1: ("exit_code", "int32"), 2: ("runtime", "int32")},
}


class _Run(Struct):
    """One run while its files are read."""

    rows: RowCollector
    name: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    starts: list[float] = field(default_factory=list)
    commit: str = ""
    exit_code: int | None = None
    runtime: int = 0
    machine: int = 0
    faulty: int = 0
    notes: list[str] = field(default_factory=list)


class Damage(Struct):
    """The unreadable parts of a log.

    Attributes:
        torn: Whether it ends in the middle of a record.
        blocks: Number of blocks with a wrong checksum.
    """

    torn: bool = False
    blocks: int = 0


def detects(source: Source) -> bool:
    """Tell whether a file has the first bytes of a log or the members of history rows, or a folder holds such a file."""
    return next(_files(source), None) is not None


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read all runs.

    Raises:
        UnreadableError: Where no run logged a series with a known name.
        UsageError: Where protobuf is missing, or `columns` names something that does not exist.
    """
    runs: dict[str, _Run] = {}
    files = list(_files(source))
    for file in files:
        if file.first(len(MARK)) == MARK:
            _read_log(runs, file)
        else:
            _read_history(runs.setdefault(file.path.as_posix(), _Run(RowCollector("W&B"))), file)
    with_rows = [run for run in runs.values() if len(run.rows)]
    if not with_rows:
        raise UnreadableError(f"{source.shown} is of W&B, but no call of log is in it", hint="Look whether the run got that far.")
    tracked = [_tracked(run, columns) for run in with_rows]
    if len(files) == MAX_FILES:
        tracked[0].notes.append(f"only the first {MAX_FILES:,} logs were read: name the folder of a run")
    number_equal_names(tracked)
    return runs_of(tracked, {name: column for name, column in columns.items() if name != "step"}, source.shown, NAME)


def _files(source: Source) -> Iterator[Source]:
    """Yield logs in the order of their names, which hold the time, then the older histories of runs without a log."""
    if not source.is_folder:
        if source.first(len(MARK)) == MARK or _is_history(source):
            yield source
        return
    logs = [
        (name, file) for name, file in source.files(max_files=MAX_FILES, part_of_name=".wandb") if file.first(len(MARK)) == MARK
    ]
    yield from (file for _, file in logs)
    homes = tuple(name.rpartition("/")[0] for name, _ in logs)
    for name, file in source.files(max_files=MAX_FILES, part_of_name=_HISTORY):
        home = name.rpartition("/")[0].removesuffix("files").rstrip("/")
        if home not in homes and _is_history(file):
            yield file


def _is_history(file: Source) -> bool:
    """Tell whether the first row has the members that the package writes into every row."""
    line = file.first(2**16).lstrip().partition(b"\n")[0]
    return line.startswith(b"{") and b'"_step"' in line and (b'"_timestamp"' in line or b'"_runtime"' in line)


@cache
def _messages() -> dict[str, Any]:
    return message_classes("wandb", _MESSAGES, extra="wandb", what="W&B's offline runs")


def _read_log(runs: dict[str, _Run], file: Source) -> None:
    """Read a log, which begins with the record of its run."""
    kind, damage = _messages()["Record"], Damage()
    from google.protobuf.message import DecodeError

    run, faulty = _Run(RowCollector("W&B")), 0
    for data in records(file.data, damage):
        try:
            record = kind.FromString(data)
        except DecodeError:
            faulty += 1
            continue
        if record.HasField("run"):
            run = runs.setdefault(_text(record.run.run_id), run)
            _take_run(run, record.run)
        elif record.HasField("history"):
            _take_history(run, record.history)
        elif record.HasField("config"):
            _take_config(run, record.config)
        elif record.HasField("exit"):
            run.exit_code, run.runtime = record.exit.exit_code, record.exit.runtime
        elif record.HasField("stats"):
            run.machine += 1
    if run not in runs.values() and len(run.rows):
        runs[file.path.as_posix()] = run
    run.faulty += faulty
    if damage.torn:
        run.notes.append(
            f"{file.shown} ends in the middle of a record, which was left out: the program was cut off, or still runs"
        )
    if damage.blocks:
        run.notes.append(f"{damage.blocks:,} blocks of {file.shown} have a wrong checksum: what follows in them was left out")


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")


def _take_run(run: _Run, record: Any) -> None:
    run.name = _text(record.display_name) or run.name or _text(record.run_id)
    run.commit = _text(record.git.commit) or run.commit
    if record.start_time.seconds > 0:
        run.starts.append(record.start_time.seconds + record.start_time.nanos / 1e9)
    run.exit_code = None
    _take_config(run, record.config)


def _take_config(run: _Run, config: Any) -> None:
    for item in config.update:
        path = _path(item)
        if not path[0].startswith("_"):
            _put(run.config, path, json_of(item.value_json))


def _path(item: Any) -> list[str]:
    """Return the path of names to a member: several names where it is nested."""
    return [_text(key) for key in item.nested_key] or [_text(item.key)]


def _put(place: dict[str, Any], path: list[str], value: Any) -> None:
    """Set a member in nested objects; members deeper than `MAX_DEPTH` are left out."""
    if len(path) > MAX_DEPTH:
        return
    for name in path[:-1]:
        inner = place.setdefault(name, {})
        if not isinstance(inner, dict):
            return
        place = inner
    place[path[-1]] = value


def _take_history(run: _Run, history: Any) -> None:
    plain: dict[str, bytes] = {}
    nested: dict[str, Any] = {}
    for item in history.item:
        path = _path(item)
        if len(path) == 1:
            plain[path[0]] = item.value_json
        else:
            _put(nested, path, json_of(item.value_json))
    step = history.step.num if history.HasField("step") else step_number(_number(plain.get("_step", b"")))
    time = _number(plain.get("_timestamp", b""))
    run.rows.begin(step if step is not None and step >= 0 else None, NO_TIME if time is None else time)
    for name, text in plain.items():
        if name in _OWN:
            continue
        if (value := _number(text)) is not None:
            run.rows.number(name, value)
        else:
            run.rows.take(name, json_of(text))
    run.rows.take("", nested)


def _number(text: bytes) -> float | None:
    try:
        return float_of(text.decode())
    except ValueError:
        return None


def _read_history(run: _Run, file: Source) -> None:
    """Read a history of JSON rows."""
    run.name = file.path.resolve().parent.name if file.path.parent.name != "files" else file.path.resolve().parent.parent.name
    lines = file.data.split(b"\n")
    torn = lines.pop().strip()
    for line in lines:
        row = json_of(line) if line.strip() else None
        if isinstance(row, dict):
            time = number(row.get("_timestamp"))
            run.rows.begin(step_number(number(row.get("_step"))), NO_TIME if time is None else time)
            run.rows.take("", {name: value for name, value in row.items() if name not in _OWN and name != "_type"})
        elif line.strip():
            run.faulty += 1
    if torn:
        run.notes.append(f"{file.shown} ends in the middle of a row, which was left out")


def _tracked(logged: _Run, columns: Mapping[str, str]) -> TrackedRun:
    run = logged.rows.tracked(logged.name, columns)
    run.notes += logged.notes
    write_config(run.manifest, logged.config)
    run.manifest.name = run.name
    if logged.commit:
        run.manifest.commit = logged.commit
    if len(logged.starts) == 1:
        session = Session(start=logged.starts[0])
        if logged.exit_code is not None and logged.runtime >= 0:
            session.end = logged.starts[0] + logged.runtime
        run.manifest.sessions = [session]
    elif logged.starts:
        run.notes.append(f"{len(logged.starts):,} folders of one id: the run was resumed")
    if logged.exit_code:
        run.notes.append(f"W&B says that the program ended with exit code {logged.exit_code}")
    if logged.machine:
        run.notes.append(f"{logged.machine:,} measurements of the machine have no step and were left out")
    if logged.faulty:
        run.notes.append(f"{logged.faulty:,} records cannot be read and were left out")
    return run


# A `.wandb` file consists of blocks of 32 KiB with pieces of records, each with a checksum. The layout is that of LevelDB's log
# (a piece is whole, first, middle or last); the checksum is a CRC-32 over the kind and the bytes. After a wrong checksum the rest
# of its block cannot be trusted; reading continues at the next block.
def records(data: bytes, damage: Damage) -> Iterator[bytes]:
    """Yield the complete records of a log, without the file's header, and record in `damage` what could not be read."""
    parts: list[bytes] = []
    size = 0
    for kind, piece in _pieces(data, damage):
        if kind == _WHOLE:
            parts, size = [], 0
            yield piece
            continue
        if kind == _FIRST:
            parts, size = [], 0
        elif not parts:
            continue  # the beginning of the record was in a broken block
        size += len(piece)
        if size > MAX_RECORD:
            parts = []
            continue
        parts.append(piece)
        if kind == _LAST:
            yield b"".join(parts)
            parts = []
    damage.torn = damage.torn or bool(parts)


def _pieces(data: bytes, damage: Damage) -> Iterator[tuple[int, bytes]]:
    place, end = HEADER, len(data)
    while place < end:
        left = _BLOCK - place % _BLOCK
        if left < HEADER:
            place += left
            continue
        if place + HEADER > end:
            damage.torn = True
            return
        check, length, kind = _PIECE.unpack_from(data, place)
        if place + HEADER + length > end and HEADER + length <= left:
            damage.torn = True
            return
        piece = data[place + HEADER : place + HEADER + length]
        if HEADER + length > left or kind not in _STARTS or crc32(piece, _STARTS[kind]) != check:
            damage.blocks += 1
            place += left
            continue
        place += HEADER + length
        yield kind, piece
