"""CSV and TSV files with a header line: one row per logged step, columns under whatever names."""

from collections.abc import Mapping, Sequence

from ckaudit.errors import UnreadableError
from ckaudit.importers.cells import Column, without_placeholders
from ckaudit.importers.curves import UNIX_TIME, Curves, Values, joined, parsed, steps_of, steps_of_tokens
from ckaudit.importers.imported import Imported
from ckaudit.importers.names import listed, recognised, resolved, short
from ckaudit.importers.source import Source
from ckaudit.importers.table import Table, holds_numbers, read_table, sniffed

NAME = "CSV"
GENERIC = True
SLICE = "slice_val_loss/"


def detects(source: Source) -> bool:
    """Tell whether the file starts as a table: a header, and numbers below it or a name that is known."""
    found = sniffed(source.head)
    if found is None:
        return False
    _, header, rows = found
    named_so = source.path.name.removesuffix(".gz").removesuffix(".zst").lower().endswith((".csv", ".tsv"))
    return named_so or bool(recognised(header)) or holds_numbers(rows, len(header))


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read a table; columns that `columns` does not name are recognised by their common names.

    An empty cell was not recorded. The word nan was recorded as NaN, unless it stands between the numbers of its column
    so often that it can only mean *nothing here*.

    Raises:
        UnreadableError: Where no column can be recognised, or none holds a value.
        UsageError: Where `columns` names what is not there.
    """
    shown, data = source.shown, source.data
    found = sniffed(data)
    if found is None:
        raise UnreadableError(f"{shown} has no header line", hint="Write the names of the columns in its first line.")
    delimiter, header, _ = found
    choices = recognised(header)
    mapped = {name: [position] for name, position in resolved(columns, header).items()}
    taken = {positions[0] for positions in mapped.values()}
    choices = {name: kept for name, positions in choices.items() if (kept := [each for each in positions if each not in taken])}
    choices |= mapped
    if not set(choices) - {"step", "time"}:
        raise UnreadableError(
            f"{shown} is a table, but none of its columns has a name that is known: {listed(header)}",
            hint="Name them, as in --map loss=COLUMN --map step=COLUMN.",
        )
    table = read_table(data, shown, {each for positions in choices.values() for each in positions}, delimiter)
    return [joined(_curves(table, choices), table, shown, NAME)]


def _curves(table: Table, choices: Mapping[str, list[int]]) -> Curves:
    columns, notes = parsed(table)
    chosen = {name: _fullest(positions, columns) for name, positions in choices.items()}
    series: dict[str, Values] = {}
    for name, position in chosen.items():
        values = columns[position].values
        if name != "step" and (real := without_placeholders(values)) is not None:
            notes.append(f"nan in {short(table.header[position])} stands between numbers all along: read as not recorded")
            values = real
        series[name] = values
    _drop_other_clock(series)
    steps, said = _steps(series, table)
    notes = [_taken(table, chosen), *_passed_over(table, chosen, choices), *said, *notes]
    return Curves(steps, {name: values for name, values in series.items() if name != "step"}, notes)


def _fullest(positions: Sequence[int], columns: Mapping[int, Column]) -> int:
    """Return the column with most values; of two as full the first."""
    return max(positions, key=lambda position: len(columns[position].values) - columns[position].values.count(None))


def _drop_other_clock(series: dict[str, Values]) -> None:
    low, high = UNIX_TIME
    if any(value is not None and not low <= value <= high for value in series.get("time", [])):
        del series["time"]


def _steps(series: Mapping[str, Values], table: Table) -> tuple[list[int | None], list[str]]:
    if "step" in series:
        steps, notes = steps_of(series["step"], table.lines)
        if series["step"] and steps and steps[0] == 0 and series.get("train_loss_raw", [None])[0] is not None:
            notes.append("its steps count from 0 and were kept: step N here may be update N + 1")
        return steps, notes
    if "tokens_seen" in series and "tokens_per_update" in series:
        derived = steps_of_tokens(series["tokens_seen"], series["tokens_per_update"])
        if derived is not None:
            return derived, ["no column holds the step: it was computed as tokens seen over tokens per update"]
    numbered: list[int | None] = list(range(1, len(table.lines) + 1))
    return numbered, ["no column holds the step: rows were numbered from 1; name one with --map step=COLUMN"]


def _taken(table: Table, chosen: Mapping[str, int]) -> str:
    slices = [table.header[position] for name, position in chosen.items() if name.startswith(SLICE)]
    pairs = [f"{name} from {short(table.header[position])}" for name, position in chosen.items() if not name.startswith(SLICE)]
    if slices:
        pairs.append(f"{len(slices)} columns of slice_val_loss from {listed(slices, most=2)}")
    return f"taken: {', '.join(pairs)}"


def _passed_over(table: Table, chosen: Mapping[str, int], choices: Mapping[str, Sequence[int]]) -> list[str]:
    notes = []
    for name, positions in choices.items():
        if len(positions) > 1:
            others = [table.header[each] for each in positions if each != chosen[name]]
            notes.append(f"{name} could also be {listed(others)}, which holds no more values; --map decides otherwise")
    left = [name for position, name in enumerate(table.header) if position not in chosen.values() and position not in table.cells]
    if left:
        notes.append(f"left out, because no common name says what they are: {listed([name or '(no name)' for name in left])}")
    return notes
