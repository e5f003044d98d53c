"""Runs stored as a few files with fixed names, in a folder or in one zip archive.

An archive is read member by member, within limits: a member with too large a declared size is not decompressed.
"""

import io
import zipfile
import zlib
from collections.abc import Collection, Iterator
from functools import cached_property
from typing import Any

from ckaudit.contract.io.files import BrokenFile, refuse_crowds
from ckaudit.errors import UnreadableError
from ckaudit.importers.importer import MAX_IMPORT_BYTES, Source
from ckaudit.importers.trackers.rows import json_of

MAX_BUNDLES = 1000
_ZIP = b"PK\x03\x04"
_NAME_AT = 30  # offset of the first member's name in an archive
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError, NotImplementedError)


class Bundle:
    """The files of one run, by their names.

    Attributes:
        source: The folder or the archive.
        shown: Its name in messages.
        name: Its name without the ending of an archive.
    """

    def __init__(self, source: Source) -> None:
        """Keep a folder or an archive; nothing is read yet."""
        self.source = source
        self.shown = source.shown
        self.name = source.path.name.removesuffix(".zip")

    @cached_property
    def _archive(self) -> zipfile.ZipFile | None:
        """The opened archive; None where the source is not an archive or is broken."""
        if self.source.is_folder or not self.source.first(4).startswith(_ZIP):
            return None
        try:
            return zipfile.ZipFile(io.BytesIO(self.source.data))
        except _BROKEN:
            return None

    def holds(self, names: Collection[str]) -> bool:
        """Tell whether files with all these names exist; for a broken archive, whether it begins with one of them."""
        if self.source.is_folder:
            return all((file := self.source.inside(name)) is not None and not file.is_folder for name in names)
        if self._archive is not None:
            return {*names} <= {*self._archive.namelist()}
        head = self.source.first(_NAME_AT + 100)
        return head.startswith(_ZIP) and head[_NAME_AT:].startswith(tuple(name.encode() for name in names))

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a file, or None where it does not exist.

        Raises:
            UnreadableError: Where it cannot be read, or is too large.
        """
        if self.source.is_folder:
            file = self.source.inside(name)
            return None if file is None or file.is_folder else file.data
        if self._archive is None:
            raise self._broken("it is cut off or broken")
        if name not in self._archive.namelist():
            return None
        unpacked_size = self._archive.getinfo(name).file_size
        if unpacked_size > MAX_IMPORT_BYTES:
            reason = f"{name} in it is {unpacked_size:,} bytes unpacked, more than the {MAX_IMPORT_BYTES:,} that are read"
            raise UnreadableError(f"{self.shown}: {reason}", hint="Unpack it, and look what is in it.")
        try:
            return self._archive.read(name)
        except _BROKEN as error:
            raise self._broken(f"{name} in it cannot be unpacked: {error}") from None

    def document(self, name: str) -> dict[str, Any]:
        """Return a file that is one JSON object; empty where it does not exist or is not one.

        Raises:
            UnreadableError: Where it cannot be read, or would take a hundred times its size in memory once parsed.
        """
        data = self.read(name) or b""
        try:
            refuse_crowds(data, name)
        except BrokenFile as broken:
            raise UnreadableError(f"{self.shown}: {name} {broken.finding.message}", hint=broken.finding.help or "") from None
        value = json_of(data)
        return value if isinstance(value, dict) else {}

    def _broken(self, reason: str) -> UnreadableError:
        return UnreadableError(f"{self.shown} is a zip archive, but {reason}", hint="Copy it again, whole.")


def bundles(source: Source, names: Collection[str]) -> Iterator[Bundle]:
    """Yield the run in a source, or those in its direct subfolders and archives; a folder takes precedence over its archive."""
    own = Bundle(source)
    if own.holds(names):
        yield own
    elif source.is_folder:
        seen = set()
        inside = [*source.folders(), *(file for _, file in source.files(max_files=MAX_BUNDLES, part_of_name=".zip", deep=False))]
        for bundle in map(Bundle, inside[:MAX_BUNDLES]):
            if bundle.name not in seen and bundle.holds(names):
                seen.add(bundle.name)
                yield bundle
