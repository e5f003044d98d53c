"""SQL queries of a fleet's data set: its tables are views in DuckDB, which has no access to files or the network.

pyarrow reads the files, and DuckDB sees only its tables: a query cannot reach anything else, and cannot change the data set.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ckaudit.errors import UnreadableError, UsageError
from ckaudit.fleet.dataset import TABLES, tables_of
from ckaudit.optional import needed

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

VIEWS = ("runs", "findings", "verdicts", "metrics")
SHUT: Mapping[str, str] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "temp_directory": "",
}
"""No files, network or extensions; a query that exceeds memory fails, because it may not spill to disk either."""
LOCKED = ("SET TimeZone = 'UTC'", "SET python_enable_replacements = false", "SET lock_configuration = true")
NEWEST = "SELECT * EXCLUDE (document) FROM _runs QUALIFY row_number() OVER (PARTITION BY run ORDER BY audited DESC) = 1"
OF_NEWEST = "SELECT DISTINCT * FROM _{0} SEMI JOIN runs USING (run, audited)"  # a killed writer may leave a row twice
HELP = f"The tables are {', '.join(VIEWS)}; 'DESCRIBE runs' lists the columns of one."


class QueryResult(Struct, frozen=True):
    """The result of a query.

    Attributes:
        columns: Names of the columns.
        rows: The rows, as plain values.
        notes: Files that were skipped, a sentence each.
    """

    columns: Sequence[str]
    rows: Iterator[Sequence[Any]]
    notes: Sequence[str] = ()


def query(folder: Path | str, sql: str) -> QueryResult:
    """Return the result of one query.

    Args:
        folder: Folder of the data set.
        sql: One statement in DuckDB's SQL. The tables `runs`, `findings`, `verdicts` and `metrics` contain the newest audit of
            each run.

    Raises:
        UnreadableError: If there is no data set.
        UsageError: If the query is invalid, with DuckDB's message.
        ModuleNotFoundError: Without DuckDB.
    """
    folder = Path(folder)
    if not (folder / "runs").is_dir():
        raise UnreadableError(
            f"{folder} holds no data set of a fleet", hint="`ckaudit fleet` writes one: name its folder with --data."
        )
    with needed("ckaudit fleet query", "fleet"):
        import duckdb
    tables, notes = _open(folder)
    connection = duckdb.connect(":memory:", config=dict(SHUT))
    for name, table in tables.items():
        connection.register(f"_{name}", table)
    connection.execute(f"CREATE VIEW runs AS {NEWEST}")
    for name in VIEWS[1:]:
        connection.execute(f"CREATE VIEW {name} AS {OF_NEWEST.format(name)}")
    for setting in LOCKED:
        connection.execute(setting)
    return _ask(connection, sql, notes)


def _open(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Return each table of the data set, which is read lazily, and notes on unreadable files."""
    from pyarrow.dataset import dataset
    from pyarrow.parquet import read_schema

    tables, notes = {}, []
    for name, empty in tables_of([]).items():
        whole = []
        for path in sorted((folder / name).glob("[!._]*.parquet")):
            try:
                read_schema(path)
            except (OSError, ValueError) as error:
                notes.append(f"{path} cannot be read and is passed over: {str(error).splitlines()[0][:200]}")
            else:
                whole.append(str(path))
        tables[name] = dataset(whole, schema=empty.schema, format="parquet") if whole else empty
    assert set(tables) == set(TABLES)
    return tables, notes


def _ask(connection: "duckdb.DuckDBPyConnection", sql: str, notes: Sequence[str]) -> QueryResult:
    import duckdb
    import pyarrow as pa

    try:
        if len(connection.extract_statements(sql)) != 1:
            raise UsageError("the question is not one statement of SQL", hint=HELP)
        relation = connection.sql(sql)
        if relation is None:
            raise UsageError("the statement brings no rows", hint="Ask with SELECT; the data set cannot be changed.")
        reader = pa.RecordBatchReader.from_stream(relation)
    except (duckdb.Error, RuntimeError) as error:
        raise _wrong(error) from None
    return QueryResult(reader.schema.names, _rows(reader), notes)


def _rows(reader: "pa.RecordBatchReader") -> Iterator[Sequence[Any]]:
    import duckdb
    import pyarrow as pa

    try:
        for batch in reader:
            yield from zip(*(_plain(column) for column in batch.columns), strict=True)
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise _wrong(error) from None


def _plain(column: "pa.Array") -> list[Any]:
    """Return the values of a column, with times in UTC as text, and maps as dictionaries."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        known = column.cast(pa.timestamp("us")).to_pylist()
        return [None if time is None else f"{time.isoformat()}{'' if column.type.tz is None else 'Z'}" for time in known]
    if pa.types.is_map(column.type):
        return [None if pairs is None else dict(pairs) for pairs in column.to_pylist()]
    values: list[Any] = column.to_pylist()
    return values


def _wrong(error: Exception) -> UsageError:
    """Return DuckDB's own error message, which points at the place, without the call stack that it may add."""
    lines = [line.rstrip() for line in str(error).splitlines() if line.strip()]
    return UsageError("\n".join(lines[:12]) or type(error).__name__, hint=HELP)
