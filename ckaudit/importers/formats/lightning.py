"""`metrics.csv` from Lightning's CSVLogger: sparse rows of `epoch`, `step` and the values that a module logged.

`step` counts the batches that made an update from 0, so step 49 is update 50. Rows of a validation or the end of an epoch have
the step of the preceding update. `NAME_step` is the value of one batch, `NAME_epoch` the mean of an epoch. An empty cell is not
recorded; the word nan is recorded as NaN. A folder such as `version_3` holds the table and `hparams.yaml`; a folder of all
versions, such as `lightning_logs`, holds one run per version.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import UNSET

from ckaudit.importers.formats.csvfile import table_of
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import writable
from ckaudit.importers.tables.curves import Curves, imported_run
from ckaudit.importers.tables.numbers import NO_STEP, number
from ckaudit.importers.tables.table_header import HEAD_BYTES, sniff_table
from ckaudit.importers.trackers.tracked import plain_settings, write_config

NAME = "Lightning metrics.csv"
GENERIC = False
SIDE_BY_SIDE = True

MAX_VERSIONS = 1000

_TABLE = "metrics.csv"
_OWN = ("epoch", "step")
_HALVES = ("_step", "_epoch")


def detects(source: Source) -> bool:
    """Tell whether a table has `epoch`, `step` counted from 0, and columns that are sparse or logged by step and by epoch."""
    if source.is_folder:
        return next(_versions(source), None) is not None
    return _is_table(source.head)


def _versions(source: Source) -> Iterator[tuple[str, Source]]:
    """Yield name and folder of each version with a table: the folder itself, or its subfolders in the order of their numbers."""
    inside = sorted(source.folders(), key=lambda folder: (len(folder.path.name), folder.path.name))
    for folder in (source, *inside[:MAX_VERSIONS]):
        file = folder.inside(_TABLE)
        if file is not None and not file.is_folder and _is_table(file.first(HEAD_BYTES)):
            yield "" if folder is source else folder.path.name, folder
            if folder is source:
                return


def _is_table(head: bytes) -> bool:
    table_head = sniff_table(head)
    if table_head is None or table_head[0] != "," or not set(_OWN) <= set(table_head[1]):
        return False
    _, header, rows = table_head
    rows = [row for row in rows if len(row) == len(header)]
    halves = any(name.endswith(_HALVES) for name in header if name not in _OWN)
    return (halves or _is_sparse(header, rows)) and _counts_from_zero(header, rows)


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the table, or the table of each version; columns are recognised as in any table.

    Raises:
        UnreadableError: Where nothing was logged.
        UsageError: Where `columns` names something that does not exist.
    """
    if not source.is_folder:
        return [_run(source, columns, "")]
    runs = []
    for name, folder in _versions(source):
        run = _run(Source(folder.path / _TABLE), columns, writable(name))
        run.manifest.name = run.name or UNSET
        write_config(run.manifest, plain_settings(folder.inside("hparams.yaml")))
        runs.append(run)
    return runs


def _run(source: Source, columns: Mapping[str, str], name: str) -> Imported:
    table, curves = table_of(source, columns)
    steps, notes = curves.steps, [note for note in curves.notes if not note.startswith("its steps count from 0")]
    if columns.get("step", "step") == "step":
        steps = np.where(steps == NO_STEP, NO_STEP, steps + 1)
        notes.append("steps count from 0: step N of the file is step N + 1")
    placed = Curves(steps, curves.series, notes, curves.layers)
    return imported_run(placed, source.shown, NAME, size=table.size_text, notes=table.notes, name=name)


def _is_sparse(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Tell whether rows hold different columns, as training and validation rows do."""
    patterns = {tuple(not cell for name, cell in zip(header, row, strict=True) if name not in _OWN) for row in rows}
    return len(patterns) > 1 and all(any(row) for row in rows)


def _counts_from_zero(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Tell whether updates count from 0: the first step is 0, or most steps are one less than a multiple of their interval."""
    cells = [number(row[list(header).index("step")]) for row in rows]
    steps = np.unique([int(cell) for cell in cells if cell is not None and 0 <= cell < 2**53 and cell == int(cell)])
    if len(steps) < 2 or steps[0] == 0:
        return len(steps) > 0
    distances, counts = np.unique(np.diff(steps), return_counts=True)
    every = int(distances[counts.argmax()])
    return every > 1 and bool(np.mean((steps + 1) % every == 0) > 0.5)
