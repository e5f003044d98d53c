"""YOLO's `results.csv`: one row per epoch, padded names, the parts of the loss in separate columns.

The training loss is the sum of its parts (box, cls, dfl; obj, seg, pose in others), which are already weighted. `epoch`
counts from 1, or from 0 in older versions; updates are not counted. `lr/pg0` is the rate of the first parameter group.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from ckaudit.errors import UnreadableError
from ckaudit.importers.formats.csvfile import epoch_of
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import parts_of_loss, resolve_columns
from ckaudit.importers.notes_on_names import notes_on_left_out
from ckaudit.importers.tables.curves import Curves, imported_run, steps_of, steps_of_epochs
from ckaudit.importers.tables.numbers import Numbers
from ckaudit.importers.tables.table import NumberTable, read_numbers
from ckaudit.importers.tables.table_header import sniff_table

NAME = "YOLO results.csv"
GENERIC = False
EPOCH_AXIS = "epochs are the axis, step N here is the end of epoch N; how many updates an epoch took is not recorded"
EPOCHS_FROM_ZERO = "epochs count from 0: N was taken as step N + 1"

_SUMS = {"train_loss_raw": "train/", "val_loss": "val/"}
_RATES = ("lr/pg0", "x/lr0")


def detects(source: Source) -> bool:
    """Tell whether the header has an epoch, parts of a loss, and scores or rates with YOLO's prefixes."""
    table_head = sniff_table(source.head)
    if table_head is None or epoch_of(table_head[1]) is None:
        return False
    names = table_head[1]
    return bool(parts_of_loss(names, "train/")) and any(name.startswith("metrics/") or name in _RATES for name in names)


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the table.

    Raises:
        UnreadableError: Where nothing was logged.
        UsageError: Where `columns` names something that does not exist.
    """
    table_head = sniff_table(source.head)
    if table_head is None:
        raise UnreadableError(f"{source.shown} has no header line", hint="Write the names of the columns in its first line.")
    delimiter, header, _ = table_head
    sums = {name: parts for name, prefix in _SUMS.items() if (parts := parts_of_loss(header, prefix))}
    rates = [header.index(name) for name in _RATES if name in header]
    single = ({"learning_rate": rates[0]} if rates else {}) | resolve_columns(columns, header)
    epoch = epoch_of(header)
    wanted = {*single.values(), *(part for parts in sums.values() for part in parts), *([] if epoch is None else [epoch])}
    table = read_numbers(source.data, source.shown, header, wanted, delimiter)
    series = {name: sum_of_parts([table.columns[part] for part in parts]) for name, parts in sums.items()}
    series |= {name: table.columns[position] for name, position in single.items()}
    unmeasured: list[str] = []
    if "val_loss" in sums and "val_loss" not in single:
        series["val_loss"], unmeasured = without_zeros(series["val_loss"])
    curves = _curves(table, series, epoch)
    curves.notes += unmeasured
    curves.names = header
    curves.notes[:0] = _taken(header, {name: sums[name] for name in sums if name not in single}, single)
    return [imported_run(curves, source.shown, NAME, size=table.size_text, notes=table.notes)]


def without_zeros(held_out: Numbers) -> tuple[Numbers, list[str]]:
    """Return a validation loss without the epochs at which it is exactly 0, which were not evaluated, and a note."""
    zero = held_out.recorded & (held_out.values == 0)
    if not zero.any():
        return held_out, []
    note = f"the validation loss is exactly 0 at {int(zero.sum()):,} epochs: they were not evaluated, and count as not recorded"
    return Numbers(np.where(zero, np.nan, held_out.values), held_out.recorded & ~zero), [note]


def _curves(table: NumberTable, series: dict[str, Numbers], epoch: int | None) -> Curves:
    if "step" in series:
        steps, notes = steps_of(series.pop("step"), table.lines)
        return Curves(steps, series, notes)
    axis = None if epoch is None else steps_of_epochs(table.columns[epoch], series.values())
    if axis is None:
        return Curves(np.arange(1, len(table.lines) + 1), series, ["its epochs cannot be read: rows were numbered from 1"])
    return Curves(axis.steps, series, axis.notes, step_unit=axis.unit)


def sum_of_parts(parts: Sequence[Numbers]) -> Numbers:
    """Return the sum of the parts of a loss where all of them are recorded."""
    recorded = np.logical_and.reduce([part.recorded for part in parts])
    return Numbers(np.sum([part.values for part in parts], axis=0), recorded)


def _taken(header: Sequence[str], sums: Mapping[str, Sequence[int]], single: Mapping[str, int]) -> list[str]:
    pairs = [f"{name} as {' + '.join(header[position] for position in parts)}" for name, parts in sums.items()]
    pairs += [f"{name} from {header[position]}" for name, position in single.items()]
    used = {*single.values(), *(part for parts in sums.values() for part in parts), epoch_of(header)}
    left = [name for position, name in enumerate(header) if position not in used]
    return [f"taken: {', '.join(pairs)}", *notes_on_left_out(left)]
