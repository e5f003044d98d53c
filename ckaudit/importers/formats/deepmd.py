"""DeePMD-kit's `lcurve.out`: a table separated by blanks, whose header follows a comment sign.

`rmse_trn` and `rmse_val` are square roots of the batch losses of that step. The weights of energy, force and virial in them
follow the schedule, so they also fall when the weights fall. Without a validation set there is only `rmse_trn`.
"""

from collections.abc import Mapping

import numpy as np

from ckaudit.errors import UnreadableError
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import resolve_columns
from ckaudit.importers.notes_on_names import note_on_taken, notes_on_left_out
from ckaudit.importers.tables.curves import Curves, imported_run
from ckaudit.importers.tables.numbers import numbers, steps_from

NAME = "DeePMD-kit lcurve.out"
GENERIC = False
_COLUMNS = {"train_loss_raw": "rmse_trn", "val_loss": "rmse_val", "learning_rate": "lr"}
_OLD = {"rmse_tst": "rmse_val"}  # versions before 2 call the validation set the test set


def detects(source: Source) -> bool:
    """Tell whether the first line is a comment with the names of the step and of the training error."""
    first = source.head.partition(b"\n")[0]
    return first.startswith(b"#") and {b"step", b"rmse_trn"} <= set(first.replace(b"batch", b"step").split())


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the table; lines with more or fewer cells than the header are left out.

    Raises:
        UnreadableError: Where no step was logged.
        UsageError: Where `columns` names something that does not exist.
    """
    first, *lines = source.text.splitlines()
    header = [_OLD.get(name, name) for name in first.lstrip("# ").replace("batch", "step", 1).split()]
    rows = [cells for line in lines if not line.startswith("#") and len(cells := line.split()) == len(header)]
    if not rows:
        raise UnreadableError(
            f"{source.shown} has a header line and no rows below it", hint="Import it when something was logged."
        )
    chosen = {name: column for name, column in _COLUMNS.items() if column in header}
    chosen |= {name: header[position] for name, position in resolve_columns(columns, header).items()}
    table = {name: numbers([row[header.index(column)] for row in rows]) for name, column in chosen.items()}
    steps = steps_from(table.pop("step") if "step" in table else numbers([row[0] for row in rows]))
    others = [name for name in header[1:] if name not in chosen.values()]
    odd = sum(bool(line.strip()) and not line.startswith("#") for line in lines) - len(rows)
    notes = [f"{odd:,} lines are not as wide as the header and were left out"] if odd else []
    curves = Curves(np.asarray(steps), table, [*note_on_taken(chosen, many="columns"), *notes_on_left_out(others)], names=header)
    return [imported_run(curves, source.shown, NAME, size=f"{len(rows):,} rows", notes=notes)]
