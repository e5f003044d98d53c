"""What the user named: a file, packed or not, or a folder; read once, when somebody asks."""

import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from ckaudit.contract.io.files import MAX_BYTES, BrokenFile, raw_bytes, refuse_crowds
from ckaudit.contract.io.folder import shown_name
from ckaudit.errors import UnreadableError
from ckaudit.importers.tables.table import HEAD_BYTES, text_of

MAX_SEEN = 200_000
MAX_IMPORT_BYTES = 4 * MAX_BYTES  # a million rows of 200 bytes, and a log of that size still fits in memory


class Source:
    """A file or a folder.

    Attributes:
        path: Where it is.
        shown: Its name in messages.
        is_folder: Whether it is a folder; it has no bytes of its own then.
    """

    def __init__(self, path: Path) -> None:
        """Take a path; nothing is read yet."""
        self.path = path
        self.shown = shown_name(path.name)
        self.is_folder = path.is_dir()

    @cached_property
    def data(self) -> bytes:
        """All bytes, unpacked; none of a folder.

        Raises:
            UnreadableError: Where they cannot be had.
        """
        if self.is_folder:
            return b""
        try:
            return raw_bytes(self.path, self.shown, max_bytes=MAX_IMPORT_BYTES)
        except BrokenFile as broken:
            raise self._unreadable(broken) from None

    @property
    def document(self) -> bytes:
        """All bytes of a file that is one JSON document.

        Raises:
            UnreadableError: Where they cannot be had, or would take a hundred times their memory once they are parsed.
        """
        try:
            refuse_crowds(self.data, self.shown)
        except BrokenFile as broken:
            raise self._unreadable(broken) from None
        return self.data

    def _unreadable(self, broken: BrokenFile) -> UnreadableError:
        return UnreadableError(f"{self.shown} {broken.finding.message}", hint=broken.finding.help or "")

    @property
    def head(self) -> bytes:
        """The first bytes, to tell a format by."""
        return self.data[:HEAD_BYTES]

    @cached_property
    def text(self) -> str:
        """All of it as text; broken characters are replaced."""
        return text_of(self.data)

    def inside(self, name: str) -> "Source | None":
        """Return a file or folder inside this folder, None where there is none; links that lead out of it do not count."""
        path = self.path / name
        if not self.is_folder or not path.exists() or not path.resolve().is_relative_to(self.path.resolve()):
            return None
        return Source(path)

    def folders(self) -> Iterator["Source"]:
        """Yield the folders right inside this one, by name; links that lead out of it and hidden ones do not count."""
        for name in self._names():
            source = None if name.startswith(".") else self.inside(name)
            if source is not None and source.is_folder:
                yield source

    def first(self, size: int) -> bytes:
        """Return the first bytes as they lie on the disk, without reading the rest; none where they cannot be had."""
        try:
            if not self.path.is_file():
                return b""
            with self.path.open("rb") as stream:
                return stream.read(size)
        except OSError:
            return b""

    def files(self, *, max_files: int, part_of_name: str = "", deep: bool = True) -> Iterator[tuple[str, "Source"]]:
        """Yield the files in this folder and in those inside it, by name; links to folders are not followed.

        The search ends after `MAX_SEEN` files of any name: no store of a run lies deeper in a disk than that.

        Args:
            max_files: How many at the most.
            part_of_name: What their names must contain.
            deep: Whether those in folders inside this one are wanted.
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
