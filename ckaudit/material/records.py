"""Records of a sample: documents of text files, JSON lines and Parquet rows, all in one form.

Parquet is read some rows at a time; a column chunk that unpacks to an excessive size is refused before reading.
"""

import codecs
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from ckaudit.contract.io.files import MAX_BYTES, PACKED, BrokenFile, false_parquet_size, read_blocks
from ckaudit.errors import UsageError
from ckaudit.material.columns import Columns, has_column
from ckaudit.material.files import NOT_JSON, NOT_PARQUET, NOT_UTF8, TOO_LONG, FaultReporter, SampleFile
from ckaudit.optional import install_command
from ckaudit.wording import first_names

MAX_FILE = 256 * 2**30

SPLITS = ("file", "paragraph", "line")

Split = Literal["file", "paragraph", "line"]

Progress = Callable[[int, int], None]

MAX_LINE = 16 * 2**20  # the longest documents of public corpora are books of about 5 MB

MAX_RECORDS_LOOKED_AT, MAX_SHOWN = 100, 12

BATCH_ROWS = 64  # per batch: a page with the same long text in every row unpacks row by row


class MappedColumns:
    """The columns that the user named, each until a record of any sample has it."""

    def __init__(self, chosen: Mapping[str, str] | None = None) -> None:
        self._absent = dict(chosen or {})
        self._seen = 0
        self._others: dict[str, None] = {}

    def look(self, record: Mapping[str, Any]) -> None:
        """Note the columns of one record; null counts as a value."""
        if not self._absent:
            return
        self._absent = {meaning: column for meaning, column in self._absent.items() if not has_column(record, column)}
        self._seen += 1
        if self._seen <= MAX_RECORDS_LOOKED_AT:
            self._others |= dict.fromkeys(record)

    def check(self, files: Sequence[SampleFile]) -> None:
        """Refuse a user's column that no record has; without readable records, refuse it only if all files are text.

        Args:
            files: All files of the sample.

        Raises:
            UsageError: If there is one; the hint lists the existing columns.
        """
        for meaning, column in self._absent.items():
            if self._seen:
                raise UsageError(f"--map {meaning}={column}: no record has a column {column!r}", hint=self._hint(column, files))
            if all(file.form == "text" for file in files):
                raise UsageError(f"--map {meaning}={column}: text files have no columns", hint="leave --map out")

    def _hint(self, column: str, files: Sequence[SampleFile]) -> str:
        # Only the wanted columns of a Parquet file were read.
        parquet = next((file for file in files if file.form == "parquet"), None)
        names = list(dict.fromkeys([*self._others, *(column_names(parquet) if parquet else ())]))
        if near := get_close_matches(column, names, n=1):
            return f"did you mean {near[0]}?"
        return f"the columns are {first_names(names, MAX_SHOWN)}" if names else "the records are empty"


class Record(Struct, frozen=True):
    """One record.

    Attributes:
        file: Its file, as shown.
        line: Its line or row, from 1; the first line of a longer document.
        values: Its values, by meaning.
    """

    file: str
    line: int
    values: Mapping[str, Any]

    @property
    def place(self) -> str:
        """Its place, for people."""
        return f"{self.file}:{self.line}"


class Reading(Struct, frozen=True):
    """How to read a sample, the same in every pass.

    Attributes:
        files: Its files.
        columns: The columns of each meaning.
        split: What counts as a document in a text file: the whole file, a block between blank lines, or a line.
        named: Looks for the user's columns in every record.
    """

    files: Sequence[SampleFile]
    columns: Columns
    split: Split = "file"
    named: MappedColumns = field(default_factory=MappedColumns)

    def records(self, report: FaultReporter, progress: Progress | None = None) -> Iterator[Record]:
        """Yield every readable record; others are reported and skipped.

        Args:
            report: Called with each fault.
            progress: Called with the number of bytes done and their total.
        """
        total, before = sum(file.size for file in self.files), 0
        for file in self.files:

            def tick(done: int, before: int = before) -> None:
                if progress is not None:
                    progress(before + done, total)

            try:
                yield from self._of(file, report, tick)
            except BrokenFile as broken:
                report(replace(broken.finding, help=None))  # its help text is about checkpoints
            tick(file.size)
            before += file.size

    def _of(self, file: SampleFile, report: FaultReporter, tick: Callable[[int], None]) -> Iterator[Record]:
        if file.form == "text":
            for number, text in _texts(_blocks(file, tick), file, self.split, report):
                yield Record(file.shown, number, {"text": text})
            return
        is_parquet = file.form == "parquet"
        rows = parquet_rows(file, self.columns, report) if is_parquet else _json_lines(_blocks(file, tick), file, report)
        for number, document in rows:
            self.named.look(document)
            yield Record(file.shown, number, self.columns.pick(document))


def _blocks(file: SampleFile, tick: Callable[[int], None]) -> Iterator[bytes]:
    done = 0
    for block in read_blocks(file.path, file.shown, root=file.root, max_bytes=MAX_FILE):
        yield block if done else block.removeprefix(codecs.BOM_UTF8)
        done += len(block)
        if file.path.suffix not in PACKED:
            tick(done)


def _json_lines(blocks: Iterator[bytes], file: SampleFile, report: FaultReporter) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in split_lines(blocks):
        if line is None:
            report(TOO_LONG.at(file.shown, f"line {number} has more than {MAX_LINE:,} bytes; it was not read", line=number))
        elif line.strip():
            try:
                document = _decoded(line)
            except UnicodeDecodeError:
                report(NOT_UTF8.at(file.shown, f"line {number} is not UTF-8 text; it was not read", line=number))
            except (ValueError, RecursionError) as error:
                what = str(error)[:120] or "nested too deep"
                report(NOT_JSON.at(file.shown, f"line {number} is not a JSON object: {what}", line=number))
            else:
                yield number, document


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        document = json.loads(line.decode())  # it accepts bare NaN and half surrogate pairs
        json.dumps(document, ensure_ascii=False).encode()  # no training text can hold half a surrogate pair
    if not isinstance(document, dict):
        raise ValueError(f"it is a {type(document).__name__}")  # noqa: TRY004  the same fault as any other line
    return document


def _texts(blocks: Iterator[bytes], file: SampleFile, split: Split, report: FaultReporter) -> Iterator[tuple[int, str]]:
    for number, data in _parts(blocks, split):
        if data is None:
            report(TOO_LONG.at(file.shown, f"line {number}: more than {MAX_LINE:,} bytes in one document; not read", line=number))
            continue
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            report(NOT_UTF8.at(file.shown, f"the document at line {number} is not UTF-8: {error.reason}", line=number))
            continue
        if text.strip():
            yield number, text


def _parts(blocks: Iterator[bytes], split: Split) -> Iterator[tuple[int, bytes | None]]:
    """Yield each document of a text file with its first line; None if it is too long."""
    if split == "file":
        data = b""
        for block in blocks:
            data += block if len(data) <= MAX_LINE else b""
        yield 1, data if len(data) <= MAX_LINE else None
        return
    lines = split_lines(blocks)
    yield from lines if split == "line" else _paragraphs(lines)


def _paragraphs(lines: Iterator[tuple[int, bytes | None]]) -> Iterator[tuple[int, bytes | None]]:
    first, gathered, size = 1, list[bytes](), 0
    for number, line in lines:
        if line is not None and not line.strip():
            if gathered or size:
                yield first, b"\n".join(gathered) if size <= MAX_LINE else None
            gathered, size = [], 0
            continue
        if not size:
            first = number
        size += MAX_LINE + 1 if line is None else len(line) + 1
        if line is not None and size <= MAX_LINE:
            gathered.append(line)
        else:
            gathered = []
    if gathered or size:
        yield first, b"\n".join(gathered) if size <= MAX_LINE else None


# Lines of a file as bytes: a line that is too long is lost, but does not fill the memory.
def split_lines(blocks: Iterable[bytes], *, longest: int = MAX_LINE) -> Iterator[tuple[int, bytes | None]]:
    r"""Yield each line with its number, from 1, without its LF or CR LF; None if it has more than `longest` bytes.

    >>> list(split_lines([b"a\r\nb", b"cd\n"], longest=2))
    [(1, b'a'), (2, None)]
    """
    number, rest, is_long = 1, b"", False
    for block in blocks:
        *whole, tail = block.split(b"\n")
        for line in whole:
            full = rest + line
            yield number, None if is_long or len(full) > longest else full.removesuffix(b"\r")
            number, rest, is_long = number + 1, b"", False
        rest += tail
        if len(rest) > longest:
            rest, is_long = b"", True
    if rest or is_long:
        yield number, None if is_long else rest.removesuffix(b"\r")


# Columns that the user named with `--map`: one that no record has is a typo and not missing data.
def parquet_rows(file: SampleFile, columns: Columns, report: FaultReporter) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each row with its number, from 1, with the wanted columns.

    Raises:
        UsageError: If pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise UsageError("reading Parquet needs pyarrow", hint=install_command("data")) from None
    number = 0
    if not file.path.is_file() or (file.root and not file.path.resolve().is_relative_to(file.root.resolve())):
        report(NOT_PARQUET.at(file.shown, "is no regular file, or a link that leads out of the folder"))
        return
    try:
        with ParquetFile(file.path, read_dictionary=_text_columns(file), thrift_string_size_limit=MAX_BYTES) as stream:
            if (wrong := false_parquet_size(stream.metadata, file.size)) is not None:
                report(NOT_PARQUET.at(file.shown, wrong))
                return
            wanted = columns.wanted(stream.schema_arrow.names)
            for batch in stream.iter_batches(batch_size=BATCH_ROWS, columns=wanted, use_threads=False):
                arrays = list(zip(batch.schema.names, batch.columns, strict=True))
                for row in range(batch.num_rows):
                    number += 1
                    yield number, {name: array[row].as_py() for name, array in arrays}
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        report(NOT_PARQUET.at(file.shown, f"cannot be read after row {number}: {str(error).splitlines()[0][:200]}"))


def column_names(file: SampleFile) -> list[str]:
    """Return the columns of a file that was read before; empty if it could not be read."""
    import pyarrow as pa
    from pyarrow.parquet import read_schema

    try:
        return list(read_schema(file.path).names)
    except (pa.ArrowException, OSError):
        return []


def _text_columns(file: SampleFile) -> list[str]:
    """Return the text columns, which stay dictionary-encoded so that a repeated text is stored once."""
    import pyarrow as pa
    from pyarrow.parquet import read_schema

    schema = read_schema(file.path)
    return [field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)]
