"""The interface of an importer: it takes a source, a file or a folder, and returns the runs that another program logged there."""

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from ckaudit.contract.io.fast_jsonl import LineTable
from ckaudit.contract.io.files import MAX_BYTES, BrokenFile, raw_bytes, refuse_crowds
from ckaudit.contract.io.folder import shown_name
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.violations import TOO_LARGE
from ckaudit.errors import UnreadableError
from ckaudit.importers.gb18030 import in_utf8
from ckaudit.importers.tables.table_header import HEAD_BYTES, text_of

MAX_SEEN = 200_000
MAX_IMPORT_BYTES = 4 * MAX_BYTES  # room for a million rows of 200 bytes; a log of that size still fits in memory
_PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")  # gzip, zstandard
Row = dict[str, float | str]
Document = Mapping[str, Any]


class Source:
    """A file, compressed or not, or a folder that a user named; its bytes are read once, on first access.

    Attributes:
        path: Its path.
        shown: Its name in messages.
        is_folder: Whether it is a folder; a folder has no bytes of its own.
    """

    def __init__(self, path: Path) -> None:
        """Keep a path; nothing is read yet."""
        self.path = path
        self.shown = shown_name(path.name)
        self.is_folder = path.is_dir()
        self._is_made = False

    @cached_property
    def data(self) -> bytes:
        """All bytes, decompressed, and Chinese text in GB18030 as UTF-8; empty for a folder.

        Raises:
            UnreadableError: Where the file cannot be read.
        """
        if self.is_folder:
            return b""
        try:
            data = raw_bytes(self.path, self.shown, max_bytes=MAX_IMPORT_BYTES)
        except BrokenFile as broken:
            raise self._unreadable(broken) from None
        return in_utf8(data, data[:HEAD_BYTES])

    def forget(self) -> None:
        """Free the bytes of a file; they are read again on the next access."""
        if not self._is_made:
            for name in ("data", "text"):
                self.__dict__.pop(name, None)

    def taken_data(self) -> bytes:
        """Return all bytes and drop the reference to them, so that they are freed when the caller no longer needs them."""
        data = self.data
        self.forget()
        return data

    @property
    def line_count(self) -> int:
        """The number of lines; the last may lack its line break."""
        return self.data.count(b"\n") + (not self.data.endswith(b"\n"))

    @property
    def document(self) -> bytes:
        """All bytes of a file that is one JSON document.

        Raises:
            UnreadableError: Where the file cannot be read, or would take a hundred times its size in memory once parsed.
        """
        try:
            refuse_crowds(self.data, self.shown)
        except BrokenFile as broken:
            raise self._unreadable(broken) from None
        return self.data

    def _unreadable(self, broken: BrokenFile) -> UnreadableError:
        hint = "keep every tenth step of it, as with awk 'NR % 10 == 1'" if broken.finding.code == TOO_LARGE.code else ""
        return UnreadableError(f"{self.shown} {broken.finding.message}", hint=hint or broken.finding.help or "")

    @cached_property
    def head(self) -> bytes:
        """The first bytes, decompressed, to recognize a format by; the rest of a plain file is not read for them."""
        first = self.first(HEAD_BYTES)
        return in_utf8(first, first) if first and not first.startswith(_PACKED) else self.data[:HEAD_BYTES]

    @cached_property
    def text(self) -> str:
        """The whole file as text; invalid characters are replaced."""
        return text_of(self.data)

    def with_data(self, data: bytes) -> "Source":
        """Return a source with the same name and other bytes: the contents of this one, written in another format."""
        source = Source(self.path)
        source.__dict__ |= {"data": data, "head": data[:HEAD_BYTES], "_is_made": True}
        return source

    def inside(self, name: str) -> "Source | None":
        """Return a file or folder inside this folder, or None where there is none; links that lead out of it do not count."""
        path = self.path / name
        try:
            is_there = self.is_folder and path.exists() and path.resolve().is_relative_to(self.path.resolve())
        except (OSError, ValueError, RuntimeError):  # a name from a file is too long or invalid, or a link leads to itself
            return None
        return Source(path) if is_there else None

    def folders(self) -> Iterator["Source"]:
        """Yield the direct subfolders by name; hidden ones and links that lead out of this folder do not count."""
        for name in self._names():
            source = None if name.startswith(".") else self.inside(name)
            if source is not None and source.is_folder:
                yield source

    def first(self, size: int) -> bytes:
        """Return the first bytes as stored on disk, without reading the rest; empty where the file cannot be read."""
        try:
            if not self.path.is_file():
                return b""
            with self.path.open("rb") as stream:
                return stream.read(size)
        except OSError:
            return b""

    def files(self, *, max_files: int, part_of_name: str = "", deep: bool = True) -> Iterator[tuple[str, "Source"]]:
        """Yield the files in this folder and its subfolders, by name; links to folders are not followed.

        The search ends after `MAX_SEEN` files of any name, so that a whole disk is not walked for a run.

        Args:
            max_files: Maximum number of files.
            part_of_name: A text that their names must contain.
            deep: Whether to search subfolders, too.
        """
        number = seen = 0
        for folder, inner, names in os.walk(self.path):
            inner[:] = sorted(inner) if deep else []
            seen += len(names)
            if seen > MAX_SEEN:
                return
            for name in sorted(name for name in names if part_of_name in name):
                relative = Path(folder, name).relative_to(self.path).as_posix()
                source = self.inside(relative)
                if source is None or source.is_folder:
                    continue
                if number == max_files:
                    return
                number += 1
                yield relative, source

    def _names(self) -> list[str]:
        try:
            return sorted(path.name for path in self.path.iterdir()) if self.is_folder else []
        except OSError:
            return []


class Imported(Struct, frozen=True):
    """One run from the log of another program.

    Attributes:
        table: Lines of `ck.scalars.v1` as columns: values by catalogue name, ordered by session, then step. A cell that is not
            recorded was not in the log; a NaN was logged as NaN.
        manifest: What the format gives about the run as a whole.
        notes: What was recognised, what was left out, and what the format cannot hold; one sentence each.
        source: Name of the format.
        name: Name among several runs of one source; empty: there is only this one.
        documents: Checkpoints of `ck.analysis.v1` made of statistics per layer, in step order: each has a `step` and sections
            such as {"gradients": {"layer.0": {"norm": 1.5}}}.
    """

    table: LineTable
    manifest: Manifest
    notes: tuple[str, ...]
    source: str
    name: str = ""
    documents: Sequence[Document] = ()

    @property
    def rows(self) -> list[Row]:
        """The lines as dictionaries."""
        return rows_of(self.table)


def rows_of(table: LineTable) -> list[Row]:
    """Return the lines of a table as dictionaries: `step`, `session` if there are several, and the recorded values."""
    several = bool(table.sessions.any())
    rows: list[Row] = [
        {"step": step, "session": session} if several else {"step": step}
        for step, session in zip(table.steps.tolist(), table.sessions.tolist(), strict=True)
    ]
    for index, name in enumerate(table.names):
        values = table.values[index].tolist()
        known = None if table.recorded is None else table.recorded[index].tolist()
        for position, value in enumerate(values):
            if known is None or known[position]:
                rows[position][name] = value
    for name, words in table.texts.items():
        for row, word in zip(rows, words, strict=True):
            if word is not None:
                row[name] = word
    return rows


class Importer(Protocol):
    """The interface that a module must have to be an importer.

    Attributes:
        NAME: The format, as a user would call it.
        GENERIC: Whether the format has no mark of its own, so that all other importers are tried first.

    An importer that also reads a folder of runs, beside which other logs may lie, sets `SIDE_BY_SIDE = True`. One that searches
    all subfolders for its files sets `SEARCHES = True`. One whose files may hold anything sets `ONLY_BY_NAME = True`: it reads
    what a user names, but not what a search finds.
    """

    NAME: str
    GENERIC: bool

    def detects(self, source: Source) -> bool:
        """Tell whether this importer reads a source: a file by its first bytes, a folder by its contents."""

    def read(self, source: Source, columns: Mapping[str, str]) -> list[Imported]:
        """Read all runs of the source; `columns` maps catalogue names to the source's own column names.

        Raises:
            UnreadableError: Where the source has this format, but is broken or holds no value.
            UsageError: Where `columns` names something that does not exist.
        """
