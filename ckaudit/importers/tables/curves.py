"""Columns of a table turned to lines: a step and the values recorded there."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from msgspec import UNSET, Struct, field
from numpy.typing import NDArray

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.errors import UnreadableError
from ckaudit.importers.imported import Imported
from ckaudit.importers.layers.to_checkpoints import Layers
from ckaudit.importers.loss_kinds import loss_kind_of_names
from ckaudit.importers.names import listed, short, slices_of
from ckaudit.importers.tables.arrow import from_floats
from ckaudit.importers.tables.merge import merge_notes, merge_numbers
from ckaudit.importers.tables.numbers import NO_STEP, Numbers, numbers
from ckaudit.importers.tables.parse_number import column
from ckaudit.importers.tables.table import DELIMITERS, Table, read_table

UNIX_TIME = (1e8, 1e11)  # s; 1973 and 5138: a clock of another kind counts from zero, or in milliseconds

SCALARS_ONLY = "a table holds scalars only: weights, gradients, activations and attention of single tensors were not recorded"

LEAST_BYTES = 2**18  # loading pyarrow takes as long as reading this much with the csv module

_ODD = (b'"', b"(", b"\0")  # a quoted cell, the word nan(...), a hole in the file


class Parsed(Struct, frozen=True):
    """The wanted columns of a table as numbers.

    Attributes:
        header: Every column's name, as written.
        columns: The wanted columns by their position in the header.
        lines: Line of the file on which each row ends, from 1.
        delimiter: What stands between cells; empty: the file is no text.
        notes: Cells that are no numbers, and rows that could not be read.
    """

    header: Sequence[str]
    columns: Mapping[int, Numbers]
    lines: Sequence[int]
    delimiter: str
    notes: list[str]

    @property
    def found(self) -> str:
        """What was found, in a few words."""
        between = f", {DELIMITERS[self.delimiter]} between cells" if self.delimiter else ""
        return f"{len(self.lines):,} rows{between}"


class Curves(Struct):
    """The series of one file before they are joined.

    Attributes:
        steps: Shape (N,); step of each row, `NO_STEP` where the row has none.
        series: Columns of N cells by catalogue name.
        notes: What was done to get them.
        layers: Columns of N cells by the file's own name of a statistic of one tensor or layer.
        names: The file's own names of everything that was logged.
    """

    steps: NDArray[np.int64]
    series: dict[str, Numbers]
    notes: list[str] = field(default_factory=list)
    layers: dict[str, Numbers] = field(default_factory=dict)
    names: Sequence[str] = ()


def parsed(data: bytes, shown: str, header: Sequence[str], wanted: Collection[int], delimiter: str) -> Parsed:
    """Read the numbers of the wanted columns, and say which cells were none.

    Raises:
        UnreadableError: Where no row stands below the header.
    """
    if plain := plain_columns(data, len(header), wanted, delimiter):
        columns, rows = plain
        return Parsed(header, columns, range(2, rows + 2), delimiter, [])
    return _with_care(read_table(data, shown, set(wanted), delimiter))


def _with_care(table: Table) -> Parsed:
    columns, notes = {}, []
    for position, cells in table.cells.items():
        read = column(cells, decimal_comma=table.delimiter != ",")
        columns[position] = numbers(read.values)
        if read.faulty:
            first = read.faulty[0]
            notes.append(
                f"{len(read.faulty):,} cells of {short(table.header[position])} are no numbers and count as not recorded, "
                f"first {short(cells[first])!r} in line {table.lines[first]:,}"
            )
        if read.commas:
            notes.append(f"{read.commas:,} cells of {short(table.header[position])} were read with a decimal comma")
    return Parsed(table.header, columns, table.lines, table.delimiter, [*notes, *table.notes])


def drop_other_clock(series: dict[str, Numbers]) -> None:
    """Take out a `time` that does not tell Unix time."""
    low, high = UNIX_TIME
    if "time" in series:
        times = series["time"].values[series["time"].recorded]
        if not ((times >= low) & (times <= high)).all():
            del series["time"]


def joined(
    curves: Curves, shown: str, source: str, *, found: str, notes: Iterable[str] = (), last: str = SCALARS_ONLY, name: str = ""
) -> Imported:
    """Join the curves to lines, and say what they are.

    Args:
        curves: Steps and series.
        shown: The file's name in messages.
        source: Name of the format.
        found: What was found, in a few words.
        notes: What was said of the file as a whole.
        last: What the format cannot hold.
        name: Which of several runs.

    Raises:
        UnreadableError: Where no value is left.
    """
    merged = merge_numbers(curves.steps, curves.series)
    layers = layers_of(curves)
    if not len(merged.table.steps) and not layers:
        raise UnreadableError(
            f"{shown} holds no value at any step", hint="Name the columns: --map step=COLUMN --map loss=COLUMN."
        )
    empty = sorted(each for each, values in curves.series.items() if not values.count)
    said = [
        f"read as {source}: {found}",
        *curves.notes,
        *notes,
        *([f"no value was recorded in {listed(empty)}"] if empty else []),
        *merge_notes(merged),
        *layers.notes(),
        *([] if layers else [last]),
    ]
    manifest = Manifest(schema_version="ck.run.v1", source=source, loss_kind=loss_kind_of_names(curves.names) or UNSET)
    if slices := slices_of(merged.table.names):
        manifest.slices = slices
    if tensors := layers.tensors():
        manifest.tensors = tensors
    return Imported(merged.table, manifest, tuple(said), source, name, layers.documents())


def layers_of(curves: Curves) -> Layers:
    """Return the statistics of single tensors and layers among the columns."""
    layers = Layers()
    for name, statistic in curves.layers.items():
        kept = statistic.recorded & (curves.steps != NO_STEP)
        layers.take_series(name, curves.steps[kept], statistic.values[kept])
    return layers


# The quick way through a table: numbers of a file without anything odd, by pyarrow's reader instead of the csv module.
def plain_columns(data: bytes, width: int, wanted: Collection[int], delimiter: str) -> tuple[Mapping[int, Numbers], int] | None:
    """Return the wanted columns and the number of rows, None where the file must be read with care.

    That is wherever a row is not as wide as the header, the last one has no line end, or a cell is neither empty nor a number
    as every reader understands it: whatever this function reads, the csv module and Python's float read alike.

    Args:
        data: The whole file, its header in the first line.
        width: Number of columns.
        wanted: Positions of columns.
        delimiter: What stands between cells.
    """
    start = data.find(b"\n") + 1
    if len(data) < LEAST_BYTES or not 0 < start < len(data) or not _is_plain(data, start):
        return None
    import pyarrow as pa
    from pyarrow import csv

    names = [str(position) for position in range(width)]
    kept = [str(position) for position in sorted(wanted)]
    try:
        table = csv.read_csv(
            pa.BufferReader(pa.py_buffer(memoryview(data)[start:])),
            csv.ReadOptions(column_names=names),
            csv.ParseOptions(delimiter=delimiter, quote_char=False),
            csv.ConvertOptions(include_columns=kept, column_types=dict.fromkeys(kept, pa.float64()), null_values=[""]),
        )
    except pa.ArrowInvalid:
        return None
    if table.num_rows != data.count(b"\n", start):  # it passes over blank lines, and later ones would be told by a wrong number
        return None
    return {int(name): from_floats(table[name]) for name in kept}, table.num_rows


def _is_plain(data: bytes, start: int) -> bool:
    return (
        data.endswith(b"\n")
        and b'"' not in data[:start]
        and bool(data[: start - 1].strip())
        and (b"\r" not in data or data.count(b"\r") == data.count(b"\r\n"))
        and not any(data.find(odd, start) >= 0 for odd in _ODD)
    )
