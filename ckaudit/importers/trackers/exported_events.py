"""Event files from `ckaudit export`: one per session, whose first event names the writer and the session.

All names are the run's own, so nothing is guessed and nothing is lost. A wall time of 0 means no time, a tag `name:text` holds a
word, and `run.json` is stored as text.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from ckaudit.contract.io.fast_jsonl import LineTable
from ckaudit.contract.io.files import MANIFEST_NAME
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.scalars import EXPORT_MARK, EXPORTED_WORDS
from ckaudit.errors import UnreadableError, UsageError
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.tables.numbers import MAX_STEP
from ckaudit.importers.trackers.tfevents import STRING, messages, records, scalar_of

NAME = "event files of ckaudit export"

_MARK_BYTES = 128
_WRITER = re.compile(rf"{re.escape(EXPORT_MARK)} (\d{{1,18}})".encode())
_NAME_OF_RUN = MANIFEST_NAME.encode()


class _Lines:
    """Values by session and step while files are read."""

    def __init__(self) -> None:
        self.values: dict[tuple[int, int], dict[str, float]] = {}
        self.words: dict[tuple[int, int], dict[str, str]] = {}
        self.manifest = b""
        self.notes: list[str] = []

    def take(self, session: int, event: Any) -> None:
        """Add the values of one event.

        Raises:
            ValueError: Where the event is not from an export.
        """
        if not 0 <= event.step <= MAX_STEP:
            raise ValueError(f"a step is {event.step}")
        line = self.values.setdefault((session, event.step), {})
        if event.wall_time:
            line["time"] = event.wall_time
        for value in event.summary.value:
            tag = value.tag.decode("utf-8", errors="replace")
            if value.tensor.dtype != STRING:
                number = scalar_of(value.tensor)
                if number is None:
                    raise ValueError(f"{tag[:80]} holds no number at step {event.step}")
                line[tag] = number
            else:
                word = b"".join(value.tensor.string_val[:1]).decode("utf-8", errors="replace")
                self.words.setdefault((session, event.step), {})[tag.removesuffix(EXPORTED_WORDS)] = word

    def table(self) -> LineTable:
        """Return the lines ordered by session, then step."""
        places = sorted(self.values)
        names = sorted(dict.fromkeys(name for line in self.values.values() for name in line), key=lambda name: name != "time")
        slots = {name: slot for slot, name in enumerate(names)}
        values = np.full((len(names), len(places)), np.nan)
        known = np.zeros(values.shape, bool)
        for column, place in enumerate(places):
            for name, value in self.values[place].items():
                values[slots[name], column] = value
                known[slots[name], column] = True
        steps = np.array([step for _, step in places], np.int64)
        sessions = np.array([session for session, _ in places], np.int64)
        spoken = dict.fromkeys(name for line in self.words.values() for name in line)
        texts = {name: [self.words.get(place, {}).get(name) for place in places] for name in spoken}
        return LineTable(steps, sessions, tuple(names), values, known, texts)


def is_exported(files: Iterable[Source]) -> bool:
    """Tell whether `ckaudit export` wrote all of some files."""
    return all(_WRITER.search(file.first(_MARK_BYTES)) for file in files)


def read_exported(name: str, files: Sequence[Source], columns: Mapping[str, str]) -> Imported:
    """Read the run in the event files of one folder.

    Raises:
        UnreadableError: Where a session is in two files, or a file is broken.
        UsageError: Where `columns` names anything.
    """
    if columns:
        raise UsageError(f"the names in {NAME} need no --map", hint="Leave it out.")
    lines = _Lines()
    read: dict[int, str] = {}
    for file in sorted(files, key=_session):
        session = _session(file)
        if session in read:
            raise UnreadableError(
                f"{file.shown} and {read[session]} are both of session {session}: two runs lie in one folder",
                hint="Name one of the files, or export each run into a folder of its own.",
            )
        read[session] = file.shown
        _read(lines, session, file)
    table = lines.table()
    note = f"read as {NAME}: {len(table.steps):,} lines of {len(read):,} sessions, as they were logged"
    return Imported(table, _manifest(lines.manifest), (note, *lines.notes), NAME, name)


def _session(file: Source) -> int:
    match = _WRITER.search(file.first(_MARK_BYTES))
    return int(match[1]) if match else 0


def _read(lines: _Lines, session: int, file: Source) -> None:
    parse = messages()["Event"].FromString
    from google.protobuf.message import DecodeError

    framed = records(file.data)
    if framed.torn:
        lines.notes.append(f"{file.shown} ends in the middle of an event: {framed.torn:,} bytes at its end were left out")
    if framed.broken:
        lines.notes.append(f"{framed.broken:,} events with a wrong checksum were left out")
    for start, end in framed.events[1:]:
        try:
            event = parse(file.data[start:end])
            first = event.summary.value[0] if event.summary.value else None
            if first is not None and first.tag == _NAME_OF_RUN:
                lines.manifest = b"".join(first.tensor.string_val[:1])
            elif not event.HasField("session_log"):
                lines.take(session, event)
        except (DecodeError, ValueError) as error:
            reason = str(error) or "an event cannot be decoded"
            raise UnreadableError(f"{file.shown} is of {NAME}, but broken: {reason}", hint="Write it again.") from None


def _manifest(data: bytes) -> Manifest:
    """Return the run's own `run.json` if it exists, else a new manifest."""
    try:
        return msgspec.json.decode(data, type=Manifest, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Manifest(schema_version="ck.run.v1", source=NAME)
