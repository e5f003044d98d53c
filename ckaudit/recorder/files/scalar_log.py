"""`scalars.jsonl`: one line per step, appended with one write, and reads of its last lines at a resume."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ckaudit.contract.schema.numbers import INFINITY, encode_float
from ckaudit.contract.schema.scalars import VERSION
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.stats.arrays import is_sharded, local
from ckaudit.recorder.stats.float32_rounding import shorten

BLOCK = 2**16
ENCODER = msgspec.json.Encoder()
RESERVED = ("step", "time", "session", "schema_version")


class ScalarLogWriter:
    """Appends lines to one file, opened at the first line and again after every failure.

    Attributes:
        session: The number of this start, which is in every line.
    """

    def __init__(self, path: Path, session: int) -> None:
        self._path, self.session = path, session
        self._descriptor: int | None = None
        self._announced = False
        self._torn: tuple[int, int] | None = None

    def line(self, step: int, time: float, values: Mapping[str, Any]) -> bytes:
        """Return the bytes of a log line; the first line contains `schema_version`.

        Raises:
            UnicodeEncodeError: If a text cannot be encoded.
        """
        line: dict[str, Any] = {"step": step, "time": round(time, 3), "session": self.session, **values}
        if not self._announced:
            line = {"schema_version": VERSION, **line}
        for name, value in values.items():
            if type(value) is float and not -INFINITY < value < INFINITY:
                line[name] = encode_float(value)
        data = ENCODER.encode(line) + b"\n"
        self._announced = True
        return data

    def in_session(self, line: bytes, session: int) -> bytes:
        """Return a line with its session number replaced by the current one; the number is at the front of the line."""
        return line if session == self.session else line.replace(b'"session":%d' % session, b'"session":%d' % self.session, 1)

    def write(self, data: bytes) -> None:
        """Write a line.

        Raises:
            OSError: If the line could not be written completely; the incomplete part is cut off at once or before the next line.
        """
        try:
            self._write(data)
        except OSError:
            with suppress(OSError):  # after a file system outage, even closing may fail
                self.close()
            raise

    def _write(self, data: bytes) -> None:
        if self._torn is not None:
            self._cut_again(*self._torn)
            self._torn = None
        descriptor = self._descriptor
        if descriptor is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            descriptor = self._descriptor = os.open(self._path, flags, 0o644)
        written = os.write(descriptor, data)
        if written < len(data):
            end = os.lseek(descriptor, 0, os.SEEK_CUR)
            self._torn = end - written, end
            if os.fstat(descriptor).st_size == end:  # otherwise another program has appended since
                os.ftruncate(descriptor, end - written)
                self._torn = None
            raise OSError(f"the disk took {written} of {len(data)} bytes")

    def _cut_again(self, good: int, end: int) -> None:
        """Cut off what an incomplete write left, including whole lines: all of them are written again."""
        if self._path.exists() and self._path.stat().st_size == end:
            os.truncate(self._path, good)
        else:
            cut_torn_tail(self._path)

    def close(self) -> None:
        """Close the file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def plain_value(value: Any) -> float | str | bool | None:
    """Return a logged value of any library as a number, a string, a bool or None.

    Raises:
        TypeError: If it is none of these, such as a tensor of several elements.
        ValueError: If the tensor is sharded; `value.full_tensor()` is the whole.
    """
    if is_sharded(value):
        if not all(placement.is_replicate() for placement in value.placements):
            raise ValueError("each rank has only a part of it")
        value = local(value)
    if hasattr(value, "item"):
        # A float32 printed as a float64 would show digits that nobody computed.
        narrow = getattr(getattr(value, "dtype", None), "itemsize", 8) < 8
        value = value.item()
        value = shorten(value) if narrow and isinstance(value, float) else value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a {type(value).__name__} is no scalar")


def accepted_values(values: Mapping[str, Any], guard: Guard) -> dict[str, float | str | bool | None]:
    """Return logged values as `plain_value` does; a value that is no scalar or has a reserved name is left out and counted."""
    scalars: dict[str, float | str | bool | None] = {}
    for name, value in values.items():
        with guard(f"logging {name}"):
            if name in RESERVED:
                raise ValueError("every line has its own")
            scalars[name] = plain_value(value)
    return scalars


def number(value: Any) -> float | None:
    """Return a logged value as a number; None stays None.

    Raises:
        TypeError: If it is no scalar, or a boolean.
        ValueError: If it is a string that is not a number.
    """
    scalar = plain_value(value)
    if isinstance(scalar, bool):
        raise TypeError("a boolean is no number")
    return None if scalar is None else float(scalar)


def cut_torn_tail(path: Path) -> int:
    """Cut off a torn last line, which a killed writer leaves; return the number of bytes cut."""
    if not path.exists():
        return 0
    with path.open("r+b") as stream:
        size = stream.seek(0, os.SEEK_END)
        end = size
        while end:
            start = max(0, end - BLOCK)
            stream.seek(start)
            newline = stream.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end < size:
            stream.truncate(end)
    return size - end


def last_value(path: Path, name: str, *, until: int) -> Any:
    """Return the latest value of `name` at a step up to `until`, read from the end of the file; None if there is none."""
    for line in _lines_backwards(path):
        try:
            values = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            continue
        if isinstance(values, dict) and values.get("step", until + 1) <= until and values.get(name) is not None:
            return values[name]
    return None


def values_backwards(path: Path, name: str, *, until: int, max_values: int) -> dict[int, Any]:
    """Return the latest values of `name` by step, at most `max_values` of them, up to step `until`.

    A step that was repeated after a resume has the value of its last session.
    """
    latest: dict[int, Any] = {}
    earliest = until
    for line in _lines_backwards(path):
        try:
            values = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            continue
        if not isinstance(values, dict) or not isinstance(step := values.get("step"), int) or step > earliest:
            continue
        # Going backwards, superseded lines come later and repeat steps that are known by then.
        earliest = step
        if values.get(name) is not None:
            latest.setdefault(step, values[name])
        if len(latest) >= max_values:
            break
    return latest


def _lines_backwards(path: Path) -> Iterator[bytes]:
    if not path.exists():
        return
    with path.open("rb") as stream:
        start = stream.seek(0, os.SEEK_END)
        rest = b""
        while start:
            size = min(BLOCK, start)
            start -= size
            stream.seek(start)
            rest, *lines = (stream.read(size) + rest).split(b"\n")
            yield from reversed(lines)
        yield rest
