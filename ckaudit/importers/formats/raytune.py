"""Results of Ray Tune and RLlib: `result.json`, an object per report, or `progress.csv`, a row per report; one folder per trial.

`training_iteration` counts reports. It is the step where no value of the program counts updates; a note says which value was
taken. The settings of a trial are in `params.json`, and in each report.
"""

from collections.abc import Iterator, Mapping

from msgspec import UNSET
from msgspec.structs import replace

from ckaudit.errors import UnreadableError
from ckaudit.importers.formats import csvfile, jsonl
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import catalogue_name, writable
from ckaudit.importers.tables.table_header import sniff_table
from ckaudit.importers.trackers.bundles import Bundle
from ckaudit.importers.trackers.tracked import write_config

NAME = "Ray Tune results"
GENERIC = False
SIDE_BY_SIDE = True
MAX_TRIALS = 1000

_RESULTS = ("result.json", "progress.csv")
_OWN = {"training_iteration", "time_this_iter_s", "time_total_s"}
_ITERATION = "training_iteration"
_HEAD_BYTES = 2**16


def detects(source: Source) -> bool:
    """Tell whether a file has the values that Ray adds to each report, or a folder or its subfolders hold such files."""
    if not source.is_folder:
        return {*_names(source.head)} >= _OWN
    return any(_trials(source))


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read all trials.

    Raises:
        UnreadableError: Where no trial holds a value with a known name.
        UsageError: Where `columns` names something that does not exist.
    """
    if not source.is_folder:
        return _read(source, columns, "")
    runs: list[Imported] = []
    for trial, file in _trials(source):
        name = "" if trial.path == source.path else writable(trial.path.name)
        try:
            runs += [_described(run, trial) for run in _read(file, columns, name)]
        except UnreadableError:
            if name == "":
                raise
    if not runs:
        raise UnreadableError(f"{source.shown} holds trials of Ray Tune, but no value whose name is known", hint="Use --map.")
    return runs


def _trials(source: Source) -> Iterator[tuple[Source, Source]]:
    """Yield the folder of each trial with its results: the folder itself, or its subfolders."""
    for folder in (source, *list(source.folders())[:MAX_TRIALS]):
        files = [file for name in _RESULTS if (file := folder.inside(name)) is not None and not file.is_folder]
        for file in files[:1]:
            if {*_names(file.first(_HEAD_BYTES))} >= _OWN:
                yield folder, file
                if folder is source:
                    return


def _names(head: bytes) -> list[str]:
    """Return the names of values in the first bytes of results in either format."""
    if head.lstrip().startswith(b"{"):
        rows = jsonl.objects(head)
        return [*rows[0]] if rows else []
    table = sniff_table(head)
    return table[1] if table else []


def _read(file: Source, columns: Mapping[str, str], name: str) -> list[Imported]:
    generic = jsonl if file.first(1) == b"{" else csvfile
    names = [column for column in _names(file.head) if column.partition("/")[0] not in ("config", "hist_stats")]
    counted = any(catalogue_name(column) == "step" for column in names if column != _ITERATION)
    asked = columns if counted or "step" in columns else {**columns, "step": _ITERATION}
    runs = generic.read(file, asked)
    return [replace(run, source=NAME, name=name, notes=tuple(_note(note) for note in run.notes)) for run in runs]


def _note(note: str) -> str:
    return note.replace(f"read as {jsonl.NAME}", f"read as {NAME}").replace(f"read as {csvfile.NAME}", f"read as {NAME}")


def _described(run: Imported, trial: Source) -> Imported:
    run.manifest.name = writable(trial.path.name) or UNSET
    run.manifest.source = NAME
    write_config(run.manifest, Bundle(trial).document("params.json"))
    return run
