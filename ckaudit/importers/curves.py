"""Columns of a table turned to entries: a step and the values recorded there."""

from collections.abc import Sequence

from msgspec import Struct, field

from ckaudit.contract.manifest import Manifest
from ckaudit.errors import UnreadableError
from ckaudit.importers.cells import Column, column, step_number
from ckaudit.importers.imported import Imported
from ckaudit.importers.merge import merge, merge_columns, merge_notes
from ckaudit.importers.names import listed, short
from ckaudit.importers.table import DELIMITERS, Table

Values = list[float | None]
UNIX_TIME = (1e8, 1e11)  # s; 1973 and 5138: a clock of another kind counts from zero, or in milliseconds


class Curves(Struct):
    """The series of one file before they are joined.

    Attributes:
        steps: Step of each row, None where the row has none.
        series: Values of each row by catalogue name.
        notes: What was done to get them.
    """

    steps: list[int | None]
    series: dict[str, Values]
    notes: list[str] = field(default_factory=list)


def parsed(table: Table) -> tuple[dict[int, Column], list[str]]:
    """Read the numbers of every wanted column, and say which cells were none."""
    columns = {position: column(cells, decimal_comma=table.delimiter != ",") for position, cells in table.cells.items()}
    notes = []
    for position, read in columns.items():
        if read.faulty:
            first = read.faulty[0]
            notes.append(
                f"{len(read.faulty):,} cells of {short(table.header[position])} are no numbers and count as not recorded, "
                f"first {short(table.cells[position][first])!r} in line {table.lines[first]:,}"
            )
        if read.commas:
            notes.append(f"{read.commas:,} cells of {short(table.header[position])} were read with a decimal comma")
    return columns, notes


def steps_of(values: Sequence[float | None], lines: Sequence[int]) -> tuple[list[int | None], list[str]]:
    """Return steps, and say which rows had none."""
    steps = [step_number(value) for value in values]
    lost = [line for line, step in zip(lines, steps, strict=True) if step is None]
    if not lost:
        return steps, []
    return steps, [f"{len(lost):,} rows have no whole step of 0 or more and were left out, first line {lost[0]:,}"]


def steps_of_tokens(tokens: Sequence[float | None], per_update: Sequence[float | None]) -> list[int | None] | None:
    """Return tokens / tokens_per_update where both are known in every row and the quotient is whole, else None."""
    steps = []
    for seen, each in zip(tokens, per_update, strict=True):
        step = step_number(seen / each) if seen is not None and each else None
        if step is None:
            return None
        steps.append(step)
    return list(steps)


def joined(curves: Curves, table: Table, shown: str, source: str) -> Imported:
    """Join the curves to lines, and say what they are.

    Raises:
        UnreadableError: Where no value is left.
    """
    series = {name: values for name, values in curves.series.items() if any(value is not None for value in values)}
    merged = merge_columns(curves.steps, series) if series else merge(())
    if not len(merged.table.steps):
        raise UnreadableError(
            f"{shown} holds no value at any step", hint="Name the columns: --map step=COLUMN --map loss=COLUMN."
        )
    empty = sorted(set(curves.series) - set(series))
    notes = [
        f"read as {source}: {len(table.lines):,} rows, {DELIMITERS[table.delimiter]} between cells",
        *curves.notes,
        *table.notes,
        *([f"no value was recorded in {listed(empty)}"] if empty else []),
        *merge_notes(merged),
        "a table holds scalars only: weights, gradients, activations and attention of single tensors were not recorded",
    ]
    slices = sorted(name.partition("/")[2] for name in series if name.startswith("slice_val_loss/"))
    manifest = Manifest(schema_version="ck.run.v1", source=source)
    if slices:
        manifest.slices = slices
    return Imported(merged.table, manifest, tuple(notes), source)
