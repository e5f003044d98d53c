"""TensorBoard event files: one per session, as written by trainers that resume; a resume gives its first step.

Values are 64-bit tensors, so that nothing is rounded; words are text under `name:text`. A line without a time has the wall time
0. The first event names the writer and the session, and `run.json` is stored as text, so that everything can be read back.
"""

import struct
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ckaudit.contract.io.codec import encode
from ckaudit.contract.io.fast_jsonl import LineTable
from ckaudit.contract.io.files import MANIFEST_NAME
from ckaudit.contract.schema.scalars import EXPORT_MARK, EXPORTED_WORDS
from ckaudit.run.read import Progress
from ckaudit.run.scalars import LoggedScalars

_VERSION, _START = b"brain.Event:2", 1

_SCALAR, _TENSOR = 1, 2  # DataClass

_DOUBLE, _STRING = 2, 7  # DataType

_WALL, _STEP, _FILE, _SUMMARY, _LOG, _SOURCE = 1, 2, 3, 5, 7, 10  # Event

Bytes = NDArray[np.uint8]

_CASTAGNOLI, _MASK = 0x82F63B78, 0xA282EAD8


def write(logged: LoggedScalars, folder: Path, progress: Progress | None = None) -> None:
    """Write event files into an existing folder."""
    done, total = 0, logged.lines
    for number, session in enumerate(logged.sessions):
        with (folder / f"events.out.tfevents.{number:010d}.ckaudit.session{session}").open("wb") as sink:
            tables = logged.tables(only=session)
            first = next(tables, None)
            step = int(first.steps[0]) if first is not None else 0
            begun = fixed(_WALL, double(_first_time(first)))
            written_by = field(_SOURCE, field(1, f"{EXPORT_MARK} {session}".encode()))
            sink.write(framed([begun + field(_FILE, _VERSION) + written_by]))
            if number:
                sink.write(framed([begun + varint(_STEP, step) + field(_LOG, varint(1, _START))]))
            elif logged.manifest is not None:
                sink.write(framed([begun + field(_SUMMARY, _word(MANIFEST_NAME, encode(logged.manifest)))]))
            for table in [first, *tables] if first is not None else ():
                sink.write(_lines(table))
                done += len(table.steps)
                if progress:
                    progress(done, total)


def _first_time(table: LineTable | None) -> float:
    """Return the first time in the log, or 0 if there is none."""
    if table is None or "time" not in table.names:
        return 0.0
    index = table.names.index("time")
    known = table.values[index] if table.recorded is None else table.values[index][table.recorded[index]]
    return float(known.min()) if len(known) and np.isfinite(known.min()) else 0.0


def _lines(table: LineTable) -> bytes:
    """Return an event for each line; those with the same names are made together."""
    known = np.ones(table.values.shape, bool) if table.recorded is None else table.recorded
    clock = table.names.index("time") if "time" in table.names else None
    times = np.zeros(len(table.steps)) if clock is None else np.where(known[clock], table.values[clock], 0.0)
    shown = [index for index in range(len(table.names)) if index != clock]
    parts: list[tuple[int, bytes]] = []
    for rows, names in _alike(known[shown]):
        tags = [table.names[shown[name]] for name in names]
        values = table.values[[shown[name] for name in names]][:, rows]  # (F, N)
        for alike in _by_width(table.steps[rows]):
            events = _events(tags, table.steps[rows][alike], times[rows][alike], values[:, alike])
            data = framed(events)
            size = len(data) // len(alike)
            parts += zip(rows[alike].tolist(), [data[start : start + size] for start in range(0, len(data), size)], strict=True)
    parts += _words(table, times)
    return b"".join(record for _, record in sorted(parts, key=lambda part: part[0]))


def _alike(recorded: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.intp], list[int]]]:
    """Yield the rows that hold the same names, with these names; rows with only a time hold none."""
    if not len(recorded):
        yield np.arange(recorded.shape[1]), []
        return
    patterns, group = np.unique(recorded.T, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        yield np.flatnonzero(group.ravel() == number), np.flatnonzero(pattern).tolist()


def _by_width(steps: NDArray[np.int64]) -> Iterator[NDArray[np.intp]]:
    """Yield the places of steps that need the same number of bytes."""
    widths = np.array([len(varint(_STEP, step)) for step in steps.tolist()])
    for width in np.unique(widths):
        yield np.flatnonzero(widths == width)


def _events(tags: Sequence[str], steps: NDArray[np.int64], times: NDArray[np.float64], values: NDArray[np.float64]) -> Bytes:
    """Return events with the same tags and length, shape (N, L): a pattern for one event with the numbers inserted."""
    head = fixed(_WALL, b"\0" * 8)
    step = varint(_STEP, int(steps[0]))
    bodies = [_scalar(tag, double(0.0)) for tag in tags]
    summary = field(_SUMMARY, b"".join(bodies))
    pattern = np.frombuffer(head + step + summary, np.uint8)
    events = np.tile(pattern, (len(steps), 1))
    events[:, 1:9] = _bytes(times)
    written = b"".join(varint(_STEP, step) for step in steps.tolist())
    events[:, 9 : 9 + len(step)] = np.frombuffer(written, np.uint8).reshape(len(steps), -1)
    end = len(pattern) - sum(map(len, bodies))
    for body, column in zip(bodies, values, strict=True):
        end += len(body)
        events[:, end - 8 : end] = _bytes(column)
    return events


def _bytes(values: NDArray[np.float64]) -> Bytes:
    return np.ascontiguousarray(values, "<f8").view(np.uint8).reshape(-1, 8)


def _scalar(tag: str, value: bytes) -> bytes:
    """Return a summary value whose last eight bytes are the number."""
    tensor = varint(1, _DOUBLE) + field(2, b"") + field(6, value)
    metadata = field(1, field(1, b"scalars")) + varint(4, _SCALAR)
    return field(1, field(1, _text(tag)) + field(9, metadata) + field(8, tensor))


def _words(table: LineTable, times: NDArray[np.float64]) -> Iterator[tuple[int, bytes]]:
    for name, texts in table.texts.items():
        for row, word in enumerate(texts):
            if word is not None:
                value = _word(name + EXPORTED_WORDS, _text(word))
                event = fixed(_WALL, double(float(times[row]))) + varint(_STEP, int(table.steps[row])) + field(_SUMMARY, value)
                yield row, framed([event])


def _word(tag: str, text: bytes) -> bytes:
    """Return a summary value that is text."""
    metadata = field(9, field(1, field(1, b"text")) + varint(4, _TENSOR))
    tensor = varint(1, _STRING) + field(2, field(2, varint(1, 1))) + field(8, text)
    return field(1, field(1, _text(tag)) + metadata + field(8, tensor))


def _text(text: str) -> bytes:
    return text.encode(errors="backslashreplace")


# Protocol buffer fields and TensorFlow records, for files that need no library to be written.
#
# A record is a length, its checksum, the data, and its checksum: CRC-32C (Castagnoli, RFC 3720, appendix B.4), rotated by 15 bits
# with a constant added, as in TensorFlow's record format.
def varint(number: int, value: int) -> bytes:
    """Return a field that holds a nonnegative integer.

    >>> varint(2, 300).hex()
    '10ac02'
    """
    return bytes([number << 3]) + _varint(value)


def fixed(number: int, value: bytes) -> bytes:
    """Return a field of eight bytes."""
    return bytes([number << 3 | 1]) + value


def field(number: int, value: bytes) -> bytes:
    """Return a field of bytes; it may hold a nested message."""
    return bytes([number << 3 | 2]) + _varint(len(value)) + value


def double(value: float) -> bytes:
    """Return a number as eight bytes."""
    return struct.pack("<d", value)


def framed(events: "Bytes | Sequence[bytes]") -> bytes:
    """Return events of one length as records: an array of shape (N, L), or one event."""
    rows = events if isinstance(events, np.ndarray) else np.frombuffer(b"".join(events), np.uint8).reshape(len(events), -1)
    count, size = rows.shape
    length = np.frombuffer(struct.pack("<Q", size), np.uint8)
    records = np.empty((count, size + 16), np.uint8)
    records[:, :8] = length
    records[:, 8:12] = _little(masked(length[None, :]))
    records[:, 12:-4] = rows
    records[:, -4:] = _little(masked(rows))
    return records.tobytes()


def masked(rows: Bytes) -> NDArray[np.uint32]:
    """Return the masked checksum of each row of an array of shape (N, L).

    >>> int(masked(np.zeros((1, 32), np.uint8))[0]) == (((0x8A9136AA >> 15 | 0x8A9136AA << 17) + 0xA282EAD8) & 0xFFFFFFFF)
    True
    """
    table = _table()
    check = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in rows.T:
        check = table[(check ^ column) & 0xFF] ^ (check >> np.uint32(8))
    check = ~check
    rotated = (check >> np.uint32(15)) | (check << np.uint32(17))
    return (rotated + np.uint32(_MASK)).astype(np.uint32)


def _little(checks: NDArray[np.uint32]) -> Bytes:
    return np.ascontiguousarray(checks, "<u4").view(np.uint8).reshape(-1, 4)


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


@cache
def _table() -> NDArray[np.uint32]:
    """Return the remainder of every byte."""
    remainders = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_CASTAGNOLI if value & 1 else 0)
        remainders.append(value)
    return np.array(remainders, np.uint32)
