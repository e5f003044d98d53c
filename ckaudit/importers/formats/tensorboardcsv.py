"""A TensorBoard scalar saved as CSV: wall time, step and value; only the file name says what the value is.

The browser names it `run-RUN-tag-TAG.csv`. A file with another name needs `--map loss=Value`. A folder that holds several tags of
a run, and no other log, is read as a whole: each RUN is a run, and its tags are the run's series.
"""

import re
from collections.abc import Mapping, Sequence

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.importers.formats import csvfile
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.log_search import could_be_log
from ckaudit.importers.names import RETURN, catalogue_name, writable
from ckaudit.importers.tables.loss_file_names import is_of_rewards
from ckaudit.importers.tables.numbers import counted, number, step_number
from ckaudit.importers.tables.table_header import sniff_table
from ckaudit.importers.trackers.points import NO_TIME, PointCollector
from ckaudit.importers.trackers.tracked import TrackedRun, runs_of

NAME = "TensorBoard CSV"
GENERIC = False
HEADER = ["Wall time", "Step", "Value"]
MAX_FILES = 5000
_FILE = re.compile(r"run-(.*)-tag-(.+?)(?: ?\(\d+\))?\.csv(?:\.gz|\.zst)?\Z", re.IGNORECASE)
TagFile = tuple[str, Source]


def detects(source: Source) -> bool:
    """Tell whether a file has the header, or a folder holds several tags of a run and no other log."""
    return bool(_files_by_run(source)) if source.is_folder else _delimiter(source) is not None


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the values under the tag in the file name, or under the name in `columns`.

    Raises:
        UnreadableError: Where neither says what the values are, or none is a number.
        UsageError: Where `columns` names something that does not exist.
    """
    if source.is_folder:
        return runs_of([_tracked(run, files) for run, files in _files_by_run(source).items()], columns, source.shown, NAME)
    match = _FILE.match(source.path.name)
    name = catalogue_name(match[2]) if match else None
    if name is None and is_of_rewards(source.path.name):
        name = RETURN
    if columns or name is None:
        return csvfile.read(source, columns)
    _, _, rows = source.data.partition(b"\n")
    return csvfile.read(source.with_data(f"wall_time,step,{name}\n".encode() + rows), columns)


def _delimiter(source: Source) -> str | None:
    """Return the separator of the cells in a scalar's table, or None where the file is not such a table."""
    table_head = sniff_table(source.head)
    return table_head[0] if table_head is not None and table_head[1] == HEADER else None


def _files_by_run(folder: Source) -> dict[str, list[TagFile]]:
    """Return the tags and files of each run in a folder; none where no run has several tags, or another log lies there."""
    if next(folder.folders(), None) is not None:
        return {}
    runs: dict[str, list[TagFile]] = {}
    for name, file in folder.files(max_files=MAX_FILES, deep=False):
        match = _FILE.match(name)
        if match is not None and _delimiter(file) is not None:
            runs.setdefault(match[1], []).append((match[2], file))
        elif could_be_log(name) and not name.startswith("."):
            return {}
    return runs if any(len(dict(files)) > 1 for files in runs.values()) else {}


def _tracked(run: str, files: Sequence[TagFile]) -> TrackedRun:
    """Return a run whose series are the tags, in the order of their wall times."""
    points, left_out = PointCollector(), 0
    for tag, file in files:
        delimiter = _delimiter(file)
        for line in file.text.splitlines()[1:]:
            cells = [number(cell) for cell in line.split(delimiter)]
            time, step, value = cells if len(cells) == len(HEADER) else [None] * len(HEADER)
            place = step_number(step)
            if place is None or value is None:
                left_out += 1
            else:
                points.add(writable(tag), place, value, NO_TIME if time is None else time)
    tracked = TrackedRun(writable(run), points.series(by_time=True))
    tracked.manifest = Manifest(schema_version="ck.run.v1", name=writable(run))
    if left_out:
        tracked.notes.append(f"{counted(left_out, 'line holds', 'lines hold')} no step and number: left out")
    return tracked
