"""What the user named: a file, packed or not, or a folder; read once, when somebody asks."""

from functools import cached_property
from pathlib import Path

from ckaudit.contract.files import MAX_BYTES, BrokenFile, raw_bytes, refuse_crowds
from ckaudit.contract.folder import shown_name
from ckaudit.errors import UnreadableError
from ckaudit.importers.table import HEAD_BYTES, text_of

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
        found = self.path / name
        if not self.is_folder or not found.exists() or not found.resolve().is_relative_to(self.path.resolve()):
            return None
        return Source(found)
