"""AlgoPerf's measurements.csv: training rows and evaluation rows in one sparse table, NaN written as an empty cell.

A training row holds the loss, the gradient norm and the learning rate of one update; an evaluation row holds losses and
metrics over a part of each split, the training split included. Both carry `global_step`.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ckaudit.errors import UnreadableError
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import list_names, resolve_columns, shorten_name
from ckaudit.importers.notes_on_names import note_on_taken
from ckaudit.importers.tables.curves import Curves, imported_run, steps_of
from ckaudit.importers.tables.numbers import Numbers
from ckaudit.importers.tables.table import NumberTable, read_numbers
from ckaudit.importers.tables.table_header import sniff_table

NAME = "AlgoPerf measurements.csv"
GENERIC = False

_TRAINING = {"train_loss_raw": "loss", "grad_global_norm": "grad_norm", "learning_rate": "lr"}
_VALIDATION = ("validation/loss", "validation/ctc_loss")
_SCORE = "validation/bleu"  # only translations of text are scored by BLEU
_COUNT = "validation/num_examples"


def detects(source: Source) -> bool:
    """Tell whether the table has the columns that only AlgoPerf writes together."""
    table_head = sniff_table(source.head)
    return table_head is not None and {"global_step", "accumulated_submission_time"} <= set(table_head[1])


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the table. An empty loss in a row that has other cells of its kind is read as NaN.

    Raises:
        UnreadableError: Where nothing was measured.
        UsageError: Where `columns` names something that does not exist.
    """
    shown = source.shown
    table_head = sniff_table(source.head)
    if table_head is None:
        raise UnreadableError(f"{shown} has no header line", hint="Write the names of the columns in its first line.")
    delimiter, header, _ = table_head
    usual_columns = {name: header.index(column) for name, column in _usual(header).items() if column in header}
    chosen = usual_columns | resolve_columns(columns, header)
    table = read_numbers(source.data, shown, header, {*usual_columns.values(), *chosen.values()}, delimiter)
    imported = imported_run(_curves(table, usual_columns, chosen), shown, NAME, size=table.size_text, notes=table.notes)
    if _SCORE in header:
        imported.manifest.model = {"task": "translation"}
    return [imported]


def _usual(header: Sequence[str]) -> dict[str, str]:
    return {
        "step": "global_step",
        **_TRAINING,
        "val_loss": next((column for column in _VALIDATION if column in header), ""),
        _COUNT: _COUNT,
    }


def _curves(table: NumberTable, usual_columns: Mapping[str, int], chosen: Mapping[str, int]) -> Curves:
    notes = []
    series = {name: table.columns[position] for name, position in chosen.items() if name != _COUNT}
    steps, step_notes = steps_of(series.pop("step"), table.lines)
    for group in (tuple(_TRAINING), ("val_loss", _COUNT)):
        known = [table.columns[usual_columns[name]].recorded for name in group if name in usual_columns]
        rows = np.logical_or.reduce(known) if known else np.zeros(len(table.lines), bool)
        for name in group:
            if name in series and chosen[name] == usual_columns.get(name) and (filled := _fill(series[name], rows)):
                series[name], count = filled
                header = shorten_name(table.header[chosen[name]])
                notes.append(f"{count:,} empty cells of {header} were NaN: other cells of their rows are filled")
    return Curves(steps, series, [*_taken(table, chosen), *step_notes, *notes])


def _taken(table: NumberTable, chosen: Mapping[str, int]) -> list[str]:
    own = {name: table.header[position] for name, position in chosen.items() if name != _COUNT}
    notes = [*note_on_taken(own), "training rows count steps from 0"]
    unused = [name for position, name in enumerate(table.header) if position not in chosen.values() and "loss" in name]
    if unused:
        notes.append(f"left out, because they evaluate a part of another split: {list_names(unused)}")
    return notes


def _fill(column: Numbers, rows: NDArray[np.bool_]) -> tuple[Numbers, int] | None:
    """Return the column with NaN in the empty cells of `rows`, and their number; None without such cells or without any value."""
    holes = int(np.count_nonzero(rows & ~column.recorded))
    if not holes or not column.count:
        return None
    return Numbers(column.values, column.recorded | rows), holes
