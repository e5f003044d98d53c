"""RocksDB databases, read without RocksDB's library: the tables in the manifest, and the log written after them.

Each version of a key has a number, and the highest one counts. Tables and log are merged in key order, so that only one key of
each is in memory at a time; a deletion hides versions with lower numbers.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush, merge

from msgspec import Struct, field

from ckaudit.errors import UnreadableError
from ckaudit.importers.importer import MAX_IMPORT_BYTES, Source
from ckaudit.importers.names import list_names
from ckaudit.importers.trackers.rocksdb_log import PUT, DatabaseManifest, Gone, Version, read_manifest, read_writes
from ckaudit.importers.trackers.rocksdb_table import BROKEN, TRAILER, Table

MAX_TABLES = 2000
MAX_LOG_BYTES = 64 * 2**20  # Aim begins a new table after one megabyte
MAX_CONTENT = 2**30
_CURRENT, _MANIFEST, _MAX_NAME = "CURRENT", b"MANIFEST-", 100


class Database(Struct):
    """An opened database.

    Attributes:
        shown: Its name in messages.
        beginning: The prefix of the wanted keys.
        tables: Its tables by name.
        gone: Deletions of ranges.
        written: The contents of the logs.
        notes: What could not be read.
    """

    shown: str
    beginning: bytes
    tables: dict[str, Table] = field(default_factory=dict)
    gone: list[Gone] = field(default_factory=list)
    written: list[Version] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield each existing key and its value, in key order; then add notes on what could not be read."""
        sources = [table.versions() for table in self.tables.values()]
        for key, value in _visible(merge(*sources, sorted(self.written)), self.gone, self.shown):
            if key.startswith(self.beginning):
                yield key, value
        if broken := sum(table.broken for table in self.tables.values()):
            self.notes.append(f"{broken:,} blocks of {self.shown} have a wrong checksum or are broken, and were left out")


def is_database(folder: Source) -> bool:
    """Tell whether a folder is a database: its file CURRENT names a manifest."""
    current = folder.inside(_CURRENT)
    return current is not None and current.first(len(_MANIFEST)) == _MANIFEST


def open_database(folder: Source, beginning: bytes) -> Database:
    """Open a database for the keys with a prefix.

    Raises:
        UnreadableError: Where its manifest cannot be read, or its contents are too large.
    """
    database, known = Database(folder.shown, beginning), _manifest(folder)
    missing, size = [], 0
    for number, (first, last) in known.bounds.items():
        name = f"{number:06}.sst"
        if (file := folder.inside(name)) is None:
            missing.append(name)
            continue
        try:
            table = Table(file.path, beginning)
            size += table.size()
            database.gone += _within(table.gone(), first[:-TRAILER], last[:-TRAILER])
            database.tables[name] = table
        except BROKEN:
            database.notes.append(f"{name} of {folder.shown} is broken, or of another version, and was left out")
    if size > MAX_IMPORT_BYTES:
        raise _too_large(folder.shown)
    if missing:
        database.notes.append(f"{list_names(missing)}: missing in {folder.shown}, with what they held; copy it again, whole")
    _take_logs(database, folder, known.log_number)
    return database


def _manifest(folder: Source) -> DatabaseManifest:
    """Return the manifest that the database names."""
    current = folder.inside(_CURRENT)
    name = b"" if current is None else current.first(_MAX_NAME).strip()
    file = folder.inside(name.decode("ascii", errors="replace")) if name.startswith(_MANIFEST) and b"/" not in name else None
    try:
        manifest = DatabaseManifest() if file is None else read_manifest(file.data)
        is_read = file is not None and len(manifest.bounds) <= MAX_TABLES
    except BROKEN:
        is_read = False
    if not is_read:
        raise UnreadableError(
            f"{folder.shown} is a database of RocksDB whose manifest is missing, broken or of another version",
            hint="Copy it again, whole, when nothing writes to it.",
        )
    return manifest


def _within(gone: Sequence[Gone], first: bytes, last: bytes) -> list[Gone]:
    """Return deletions of ranges, limited to the range of their own table: another table may hold newer keys in that range."""
    return [(max(begin, first), min(end, last + b"\0"), number) for begin, end, number in gone]


def _take_logs(database: Database, folder: Source, first: int) -> None:
    """Add the writes after the last table."""
    size = 0
    for name, file in folder.files(max_files=MAX_TABLES, part_of_name=".log", deep=False):
        if not (stem := name.removesuffix(".log")).isdecimal() or int(stem) < first:
            continue
        size += len(file.data)
        if size > MAX_LOG_BYTES:
            raise _too_large(folder.shown)
        writes = read_writes(file.data)
        database.written += writes.versions
        database.gone += writes.gone
        if writes.is_torn:
            database.notes.append(f"{name} of {folder.shown} ends in the middle of a record, which was left out")


def _visible(versions: Iterable[Version], gone: Sequence[Gone], shown: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield the newest version of each key, if it is a value that no deletion of a range hides."""
    waiting, hiding = sorted(gone, reverse=True), list[tuple[int, bytes]]()
    newest: bytes | None = None
    left = MAX_CONTENT
    for key, order, value in versions:
        left -= len(key) + len(value)
        if left < 0:
            raise _too_large(shown)
        if key == newest:
            continue
        newest = key
        while waiting and waiting[-1][0] <= key:
            _, end, number = waiting.pop()
            heappush(hiding, (-number, end))
        while hiding and hiding[0][1] <= key:
            heappop(hiding)
        number, kind = divmod(-order, 256)
        if kind == PUT and not (hiding and -hiding[0][0] > number):
            yield key, value


def _too_large(shown: str) -> UnreadableError:
    return UnreadableError(
        f"{shown} holds more series than are read", hint="Write those that count to a CSV file, and name that."
    )
