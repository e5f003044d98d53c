"""CSV and TSV files with a header line: one row per logged step, columns under whatever names.

Where no column holds the step but one counts epochs, as Keras' CSVLogger writes it, epochs are the axis.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ckaudit.errors import UnreadableError
from ckaudit.importers.curves import Curves, Parsed, drop_other_clock, joined, parsed, steps_of, steps_of_tokens
from ckaudit.importers.imported import Imported
from ckaudit.importers.names import listed, recognised, resolved, short
from ckaudit.importers.numbers import NO_STEP, Numbers, fullest, steps_from, without_placeholders
from ckaudit.importers.source import Source
from ckaudit.importers.table import holds_numbers, sniffed

NAME = "CSV"
GENERIC = True
SLICE = "slice_val_loss/"
EPOCH = "epoch"


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
    table, curves = table_of(source, columns)
    return [joined(curves, source.shown, NAME, found=table.found, notes=table.notes)]


def table_of(source: Source, columns: Mapping[str, str]) -> tuple[Parsed, Curves]:
    """Return the table and the series in it, under their common names.

    Raises:
        UnreadableError: Where no column can be recognised.
        UsageError: Where `columns` names what is not there.
    """
    shown = source.shown
    found = sniffed(source.head)
    if found is None:
        raise UnreadableError(f"{shown} has no header line", hint="Write the names of the columns in its first line.")
    delimiter, header, _ = found
    choices = choices_of(header, columns, shown)
    wanted = {each for positions in choices.values() for each in positions}
    epoch = epoch_of(header)
    if "step" not in choices and epoch is not None:
        wanted.add(epoch)
    table = parsed(source.data, shown, header, wanted, delimiter)
    return table, curves_of(table, choices)


def epoch_of(header: Sequence[str]) -> int | None:
    """Return the position of the column that counts epochs."""
    return next((position for position, name in enumerate(header) if name.lower() == EPOCH), None)


def choices_of(header: Sequence[str], columns: Mapping[str, str], shown: str) -> dict[str, list[int]]:
    """Return for each catalogue name the columns that may hold it; a column that the user mapped is taken for that alone.

    Raises:
        UnreadableError: Where no column can be recognised.
        UsageError: Where `columns` names what is not there.
    """
    mapped = {name: [position] for name, position in resolved(columns, header).items()}
    taken = {positions[0] for positions in mapped.values()}
    choices = {
        name: kept
        for name, positions in recognised(header).items()
        if (kept := [each for each in positions if each not in taken])
    } | mapped
    if not set(choices) - {"step", "time"}:
        raise UnreadableError(
            f"{shown} is a table, but none of its columns has a name that is known: {listed(header)}",
            hint="Name them, as in --map loss=COLUMN --map step=COLUMN.",
        )
    return choices


def curves_of(table: Parsed, choices: Mapping[str, Sequence[int]]) -> Curves:
    """Return the series of a table: of several columns for one name the fullest, with a step for each row."""
    epoch = epoch_of(table.header)
    chosen = {name: fullest(positions, table.columns) for name, positions in choices.items()}
    series: dict[str, Numbers] = {}
    notes = []
    for name, position in chosen.items():
        values = table.columns[position]
        if name != "step" and (real := without_placeholders(values)) is not None:
            notes.append(f"nan in {short(table.header[position])} stands between numbers all along: read as not recorded")
            values = real
        series[name] = values
    drop_other_clock(series)
    epochs = table.columns.get(epoch) if epoch is not None else None
    steps, said = _steps(series, table, epochs)
    passed = _passed_over(table.header, chosen, choices, () if epochs is None else (epoch,))
    notes = [_taken(table.header, chosen), *passed, *said, *notes]
    return Curves(steps, {name: values for name, values in series.items() if name != "step"}, notes)


def _steps(series: Mapping[str, Numbers], table: Parsed, epochs: Numbers | None) -> tuple[NDArray[np.int64], list[str]]:
    if "step" in series:
        steps, notes = steps_of(series["step"], table.lines)
        loss = series.get("train_loss_raw")
        if loss is not None and len(steps) and steps[0] == 0 and loss.recorded[0]:
            notes.append("its steps count from 0 and were kept: step N here may be update N + 1")
        return steps, notes
    if "tokens_seen" in series and "tokens_per_update" in series:
        derived = steps_of_tokens(series["tokens_seen"], series["tokens_per_update"])
        if derived is not None:
            return derived, ["no column holds the step: it was computed as tokens seen over tokens per update"]
    if epochs is not None and (axis := steps_of_epochs(epochs)):
        return axis
    rows = np.arange(1, len(table.lines) + 1)
    return rows, ["no column holds the step: rows were numbered from 1; name one with --map step=COLUMN"]


def steps_of_epochs(epochs: Numbers) -> tuple[NDArray[np.int64], list[str]] | None:
    """Return one step for each epoch, and say so; None where a row is no whole epoch of its own.

    Epochs that count from 0 are counted from 1: step N is the end of the N-th.
    """
    steps = steps_from(epochs)
    if (steps == NO_STEP).any() or (steps[1:] == steps[:-1]).any():
        return None
    shift = int(steps.min() == 0)
    counted = ", which the file counts from 0" if shift else ""
    note = f"no column holds the step: epochs are the axis, step N here is the end of epoch N{counted}"
    return steps + shift, [f"{note}; how many updates an epoch took is not recorded"]


def _taken(header: Sequence[str], chosen: Mapping[str, int]) -> str:
    slices = [header[position] for name, position in chosen.items() if name.startswith(SLICE)]
    pairs = [f"{name} from {short(header[position])}" for name, position in chosen.items() if not name.startswith(SLICE)]
    if slices:
        pairs.append(f"{len(slices)} columns of slice_val_loss from {listed(slices, most=2)}")
    return f"taken: {', '.join(pairs)}"


def _passed_over(
    header: Sequence[str], chosen: Mapping[str, int], choices: Mapping[str, Sequence[int]], read: Sequence[int | None]
) -> list[str]:
    notes = []
    for name, positions in choices.items():
        if len(positions) > 1:
            others = [header[each] for each in positions if each != chosen[name]]
            notes.append(f"{name} could also be {listed(others)}, which holds no more values; --map decides otherwise")
    used = {*chosen.values(), *read, *(each for positions in choices.values() for each in positions)}
    left = [name or "(no name)" for position, name in enumerate(header) if position not in used]
    if left:
        notes.append(f"left out, because no common name says what they are: {listed(left)}")
    return notes
