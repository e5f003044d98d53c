"""AlgoPerf's measurements.csv: training rows and evaluation rows in one sparse table, NaN written as an empty cell.

A training row holds the loss, the gradient norm and the learning rate of one update; an evaluation row holds losses and
metrics over a part of each split, the training split included. Both carry `global_step`.
"""

from collections.abc import Mapping, Sequence
from math import nan

from ckaudit.errors import UnreadableError
from ckaudit.importers.cells import Column
from ckaudit.importers.curves import Curves, Values, joined, parsed, steps_of
from ckaudit.importers.imported import Imported
from ckaudit.importers.names import listed, resolved, short
from ckaudit.importers.source import Source
from ckaudit.importers.table import Table, read_table, sniffed

NAME = "AlgoPerf measurements.csv"
GENERIC = False

_TRAINING = {"train_loss_raw": "loss", "grad_global_norm": "grad_norm", "learning_rate": "lr"}
_VALIDATION = ("validation/loss", "validation/ctc_loss")
_SCORE = "validation/bleu"  # only a translation of text is scored so
_COUNT = "validation/num_examples"


def detects(source: Source) -> bool:
    """Tell by the columns that only AlgoPerf writes together."""
    found = sniffed(source.head)
    return found is not None and {"global_step", "accumulated_submission_time"} <= set(found[1])


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the table; where a row of its kind lacks the loss, the loss was NaN.

    Raises:
        UnreadableError: Where nothing was measured.
        UsageError: Where `columns` names what is not there.
    """
    shown, data = source.shown, source.data
    found = sniffed(data)
    if found is None:
        raise UnreadableError(f"{shown} has no header line", hint="Write the names of the columns in its first line.")
    delimiter, header, _ = found
    usual = {name: header.index(column) for name, column in _usual(header).items() if column in header}
    chosen = usual | resolved(columns, header)
    table = read_table(data, shown, {*usual.values(), *chosen.values()}, delimiter)
    made = joined(_curves(table, usual, chosen), table, shown, NAME)
    if _SCORE in header:
        made.manifest.model = {"task": "translation"}
    return [made]


def _usual(header: Sequence[str]) -> dict[str, str]:
    return {
        "step": "global_step",
        **_TRAINING,
        "val_loss": next((each for each in _VALIDATION if each in header), ""),
        _COUNT: _COUNT,
    }


def _curves(table: Table, usual: Mapping[str, int], chosen: Mapping[str, int]) -> Curves:
    columns, notes = parsed(table)
    series = {name: columns[position].values for name, position in chosen.items() if name != _COUNT}
    steps, said = steps_of(series.pop("step"), table.lines)
    for group in (tuple(_TRAINING), ("val_loss", _COUNT)):
        rows = _rows_with(columns, [usual[name] for name in group if name in usual])
        for name in group:
            if name in series and chosen[name] == usual.get(name) and (filled := _fill(series[name], rows)):
                series[name], count = filled
                header = short(table.header[chosen[name]])
                notes.append(f"{count:,} empty cells of {header} were NaN: other cells of their rows are filled")
    return Curves(steps, series, [*_taken(table, chosen), *said, *notes])


def _taken(table: Table, chosen: Mapping[str, int]) -> list[str]:
    pairs = ", ".join(f"{name} from {short(table.header[position])}" for name, position in chosen.items() if name != _COUNT)
    notes = [f"taken: {pairs}; training rows count steps from 0"]
    unused = [name for position, name in enumerate(table.header) if position not in chosen.values() and "loss" in name]
    if unused:
        notes.append(f"left out, because they evaluate a part of another split: {listed(unused)}")
    return notes


def _rows_with(columns: Mapping[int, Column], positions: list[int]) -> list[bool]:
    """Return for each row whether any of the columns holds a value there."""
    return [any(value is not None for value in row) for row in zip(*(columns[each].values for each in positions), strict=True)]


def _fill(values: Values, rows: list[bool]) -> tuple[Values, int] | None:
    """Return the column with NaN in the empty cells of `rows`, and how many; None where there are none, or no value at all."""
    empty = [here and value is None for here, value in zip(rows, values, strict=False)]
    if not any(empty) or all(value is None for value in values):
        return None
    return [nan if hole else value for hole, value in zip(empty, values, strict=True)], sum(empty)
