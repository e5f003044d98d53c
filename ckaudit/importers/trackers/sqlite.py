"""SQLite databases of other programs, read from a copy, because a reader would write files beside the original."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ckaudit.errors import UnreadableError
from ckaudit.importers.importer import Source

if TYPE_CHECKING:
    import sqlite3

MAGIC = b"SQLite format 3\0"
_MAX_CELL = 16 * 2**20
_LOG = "-wal"
MAX_FILES = 200


def is_database(source: Source) -> bool:
    """Tell whether a file is a database."""
    return not source.is_folder and source.head.startswith(MAGIC)


def databases(source: Source, tables_of: Mapping[str, Collection[str]]) -> list[Source]:
    """Return the databases with certain tables: the file itself, or those directly in a folder, by name.

    Args:
        source: A file or a folder.
        tables_of: Columns that each table must have at least.
    """
    if not source.is_folder:
        return [source] if is_database(source) and _has(source, tables_of) else []
    inside = source.files(max_files=MAX_FILES, part_of_name=".db", deep=False)
    return [file for _, file in inside if is_database(file) and _has(file, tables_of)]


def _has(source: Source, tables_of: Mapping[str, Collection[str]]) -> bool:
    columns_of = tables(source)
    return all(set(columns_of.get(name, ())) >= set(columns) for name, columns in tables_of.items())


def tables(source: Source) -> dict[str, list[str]]:
    """Return the columns of each table; none where the file cannot be read."""
    try:
        with opened(source) as database:
            names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return {name: [row[1] for row in database.execute("SELECT * FROM pragma_table_info(?)", (name,))] for name in names}
    except UnreadableError:
        return {}


@contextmanager
def opened(source: Source) -> Iterator["sqlite3.Connection"]:
    """Open a database, including writes that are still in the write-ahead log beside it.

    Raises:
        UnreadableError: Where the database is broken.
    """
    import sqlite3
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="ckaudit-") as folder:
        copy = Path(folder) / "copy.db"
        copy.write_bytes(source.data)
        log = Source(source.path.parent).inside(source.path.name + _LOG)
        if log is not None and not log.is_folder:
            copy.with_name(copy.name + _LOG).write_bytes(log.data)
        try:
            with closing(sqlite3.connect(copy, isolation_level=None)) as database:
                database.execute("PRAGMA trusted_schema = OFF")
                database.execute("PRAGMA cell_size_check = ON")
                database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_CELL)
                database.text_factory = _text
                yield database
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the text of an error may quote broken names
            raise UnreadableError(
                f"{source.shown} is a database that is broken: {error}", hint="Copy it again, when nothing writes to it."
            ) from None


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")
