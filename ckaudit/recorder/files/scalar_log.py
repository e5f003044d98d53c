"""`scalars.jsonl`: a line per step, appended with one write, and what its end says at a resume."""

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
        session: The number of this start, which stands in every line.
    """

    def __init__(self, path: Path, session: int) -> None:
        self._path, self.session = path, session
        self._descriptor: int | None = None
        self._announced = False
        self._torn: tuple[int, int] | None = None

    def line(self, step: int, time: float, values: Mapping[str, Any]) -> bytes:
        """Return the bytes of a line; the first one names the contract.

        Raises:
            UnicodeEncodeError: If a text is none.
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
        """Return a line that was made in a session, as one of the session that is known by now: its number stands first."""
        return line if session == self.session else line.replace(b'"session":%d' % session, b'"session":%d' % self.session, 1)

    def write(self, data: bytes) -> None:
        """Write a line.

        Raises:
            OSError: If it could not be written whole; the file then ends with the line before, or will before the next.
        """
        try:
            self._write(data)
        except OSError:
            with suppress(OSError):  # of a file system that was away it may be good for nothing any more
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
            if os.fstat(descriptor).st_size == end:  # or another program has written behind it
                os.ftruncate(descriptor, end - written)
                self._torn = None
            raise OSError(f"the disk took {written} of {len(data)} bytes")

    def _cut_again(self, good: int, end: int) -> None:
        """Cut off what a write left that took only a part, whole lines of it too: all of them come again."""
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
    """Return a logged value as a number, a text, a truth value or None, from whatever library it comes.

    Raises:
        TypeError: If it is none of these, such as a tensor of several elements.
        ValueError: If ranks hold parts of it; `value.full_tensor()` is the whole.
    """
    if is_sharded(value):
        if not all(placement.is_replicate() for placement in value.placements):
            raise ValueError("each rank has only a part of it")
        value = local(value)
    if hasattr(value, "item"):
        # A float32 in the digits of a float64 shows digits that nobody computed.
        narrow = getattr(getattr(value, "dtype", None), "itemsize", 8) < 8
        value = value.item()
        value = shorten(value) if narrow and isinstance(value, float) else value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a {type(value).__name__} is no scalar")


def accepted_values(values: Mapping[str, Any], guard: Guard) -> dict[str, float | str | bool | None]:
    """Return logged values as `plain_value` does; one that is no scalar, or has a reserved name, is left out and counted."""
    scalars: dict[str, float | str | bool | None] = {}
    for name, value in values.items():
        with guard(f"logging {name}"):
            if name in RESERVED:
                raise ValueError("every line has its own")
            scalars[name] = plain_value(value)
    return scalars


def number(value: Any) -> float | None:
    """Return a logged value as a number, or None where it is None.

    Raises:
        TypeError: If it is no scalar.
        ValueError: If it is a text that is no number.
    """
    scalar = plain_value(value)
    return None if scalar is None else float(scalar)


def cut_torn_tail(path: Path) -> int:
    """Cut what follows the last newline, the half line of a killed writer; return how many bytes that were."""
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
    """Return the latest value of `name` at a step not after `until`, read from the end; None where there is none."""
    for line in _lines_backwards(path):
        try:
            values = msgspec.json.decode(line)
        except msgspec.DecodeError:
            continue
        if isinstance(values, dict) and values.get("step", until + 1) <= until and values.get(name) is not None:
            return values[name]
    return None


def values_backwards(path: Path, name: str, *, until: int, max_values: int) -> dict[int, Any]:
    """Return the latest values of `name` by step, at most `max_values` of them, none after `until`.

    A step that was taken again after a resume has the value of its last session.
    """
    latest: dict[int, Any] = {}
    earliest = until
    for line in _lines_backwards(path):
        try:
            values = msgspec.json.decode(line)
        except msgspec.DecodeError:
            continue
        if not isinstance(values, dict) or not isinstance(step := values.get("step"), int) or step > earliest:
            continue
        # Lines of a replaced stretch come later, going backwards, and repeat steps that are known by then.
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
