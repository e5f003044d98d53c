"""Tables from `ckaudit export`: Parquet, Arrow or CSV, with one row per line of `scalars.jsonl`.

The first columns are `step` and `session`. Null or an empty cell is not recorded; NaN is recorded as NaN. Texts are in columns
of their own. Nothing is guessed and nothing is lost. The history in the layout of W&B has `_step`, `_runtime` and `_timestamp`
before its sessions.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from ckaudit.contract.io.fast_jsonl import LineTable
from ckaudit.contract.io.files import false_parquet_size
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.scalars import EXPORT_KEYS, EXPORT_MARK, EXPORT_SESSION, EXPORTED_WORDS, as_written
from ckaudit.errors import UnreadableError, UsageError
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.tables.numbers import MAX_STEP
from ckaudit.importers.tables.table_header import text_of

NAME = "a table of ckaudit export"
GENERIC = False

_OF_HISTORY = {"_step": "step", "_timestamp": "time", EXPORT_SESSION: "session"}
_RUNTIME = "_runtime"  # the time since the first step
_PARQUET, _ARROW = b"PAR1", b"ARROW1"


def detects(source: Source) -> bool:
    """Tell whether the metadata hold the mark, or a CSV's first two columns are those of an export, or a history has sessions."""
    if source.is_folder:
        return False
    if source.head.startswith((_PARQUET, _ARROW)):
        return EXPORT_MARK.encode() in source.data
    header = _header(source.head)
    return tuple(header[:2]) == EXPORT_KEYS or _is_history(header)


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read a table; `columns` must be empty, because the columns already have catalogue names.

    Raises:
        UnreadableError: Where the table is broken or has no row.
        UsageError: Where `columns` names anything.
    """
    if columns:
        raise UsageError(f"the columns of {NAME} need no --map", hint="Leave it out.")
    import pyarrow as pa

    try:
        table = _table(source.data)
        lines = _lines(table)
    except (pa.ArrowException, OSError, ValueError, KeyError, OverflowError) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise UnreadableError(f"{source.shown} is {NAME}, but broken: {reason}", hint="Write it again.") from None
    if not len(lines.steps):
        raise UnreadableError(f"{source.shown} has no rows", hint="Export it when something was logged.")
    notes = (f"read as {NAME}: {len(lines.steps):,} lines, as they were logged",)
    return [Imported(lines, _manifest(table.schema.metadata or {}), notes, NAME)]


def _header(head: bytes) -> list[str]:
    """Return the names in the first line of a CSV."""
    try:
        return next(csv.reader(io.StringIO(text_of(head), newline="")), [])
    except csv.Error:
        return []


def _is_history(header: Sequence[str]) -> bool:
    return header[:1] == ["_step"] and EXPORT_SESSION in header[1:4]


def _table(data: bytes) -> Any:
    import pyarrow as pa

    if data.startswith(_PARQUET):
        from pyarrow.parquet import ParquetFile

        file = ParquetFile(pa.BufferReader(data))
        if wrong := false_parquet_size(file.metadata, len(data)):
            raise pa.ArrowInvalid(wrong)
        return file.read()
    if data.startswith(_ARROW):
        return pa.ipc.open_file(pa.BufferReader(data)).read_all()
    from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, read_csv

    start = _end_of_header(data)
    names = _header(data[:start])
    shown = [_OF_HISTORY.get(name, name) for name in names] if _is_history(names) else names
    types = {name: pa.string() if name.endswith(EXPORTED_WORDS) else pa.float64() for name in names}
    types |= {name: pa.int64() for name, read in zip(names, shown, strict=True) if read in EXPORT_KEYS}
    # Only a cell without any character, not even quotes, is not recorded.
    converted = ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False)
    parsed = ParseOptions(newlines_in_values=True)
    table = read_csv(pa.BufferReader(data[start:]), ReadOptions(column_names=names), parsed, converted)
    table = _with_texts_as_written(table.rename_columns([as_written(name) for name in shown]))
    return table.drop_columns([_RUNTIME]) if shown is not names and _RUNTIME in names else table


def _end_of_header(data: bytes) -> int:
    """Return where the first record ends; a line break within quotes belongs to a name."""
    place = quotes = 0
    while (end := data.find(b"\n", place)) >= 0:
        quotes += data.count(b'"', place, end)
        place = end + 1
        if not quotes % 2:
            return place
    return len(data)


def _lines(table: Any) -> LineTable:
    """Return the rows as lines sorted by session, then step; each such pair may occur only once."""
    names = table.column_names
    if any(table.column(name).null_count for name in EXPORT_KEYS):
        raise ValueError("a line has no step or session")
    steps, sessions = (np.asarray(table.column(name).cast("int64").to_numpy()) for name in EXPORT_KEYS)
    order = np.lexsort((steps, sessions))
    steps, sessions = steps[order], sessions[order]
    if len(set(names)) < len(names) or ((steps[1:] == steps[:-1]) & (sessions[1:] == sessions[:-1])).any():
        raise ValueError("a column or a line stands twice")
    if len(steps) and (steps.min() < 0 or steps.max() > MAX_STEP or sessions.min() < 0):
        raise ValueError("a step or a session is none")
    numbers = [name for name in names if name not in EXPORT_KEYS and not name.endswith(EXPORTED_WORDS)]
    words = [name for name in names if name.endswith(EXPORTED_WORDS)]
    columns = [table.column(name).combine_chunks() for name in numbers]
    values = np.array([column.to_numpy(zero_copy_only=False)[order] for column in columns], np.float64)
    known = np.array([column.is_valid().to_numpy(zero_copy_only=False)[order] for column in columns], bool)
    shape = len(numbers), len(steps)
    texts = {name.removesuffix(EXPORTED_WORDS): _words(table.column(name).to_pylist(), order) for name in words}
    return LineTable(steps, sessions, tuple(numbers), values.reshape(shape), known.reshape(shape), texts)


def _words(anies: list[Any], order: Any) -> list[str | None]:
    return [None if anies[place] is None else str(anies[place]) for place in order.tolist()]


def _with_texts_as_written(table: Any) -> Any:
    """Return a CSV table whose texts are without their guards against spreadsheet formulas."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            texts = [None if text is None else as_written(text) for text in table.column(place).to_pylist()]
            table = table.set_column(place, field.name, pa.array(texts, pa.string()))
    return table


def _manifest(metadata: Mapping[bytes, bytes]) -> Manifest:
    """Return the run's own `run.json` if the table contains one, else a new manifest."""
    try:
        return msgspec.json.decode(metadata.get(b"run.json", b""), type=Manifest, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Manifest(schema_version="ck.run.v1", source=NAME)
