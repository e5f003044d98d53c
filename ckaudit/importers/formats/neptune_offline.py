"""Neptune's offline runs: one folder per run in `.neptune/offline/`, with one operation per line in `data-*.log`.

A point has a value, its time and the step that the program passed; a point without a step gets the previous step plus one.
Neptune's library drops NaN and infinity with a warning. A loss that was logged together with another series and is missing at
some of its steps is therefore read as NaN there.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.importers.formats.neptune import OF_NEPTUNE
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import catalogue_name, list_names, writable
from ckaudit.importers.tables.numbers import number, step_number
from ckaudit.importers.trackers.points import NO_TIME, LoggedSeries, PointCollector
from ckaudit.importers.trackers.rows import json_of
from ckaudit.importers.trackers.tracked import TrackedRun, number_equal_names, runs_of, write_config

NAME = "Neptune offline run"
GENERIC = False
SEARCHES = True
MAX_RUNS = 1000
MAX_FILES = 1000

_PLACES = ("", "offline", ".neptune/offline")
_LOG = "data-"
_MARK = b'{"obj": {"type": "'
_SETTINGS = "parameters/"
_UNNAMED = "Untitled"
_NEVER_SKIPPED = ("train_loss_raw", "val_loss", "grad_global_norm")


def detects(source: Source) -> bool:
    """Tell whether a log begins with an operation, or a folder has runs in it or in subfolders with the usual names."""
    return next(_runs(source), None) is not None


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read all runs.

    Raises:
        UnreadableError: Where no run logged a series with a known name.
        UsageError: Where `columns` names something that does not exist.
    """
    runs = [run for run, _ in zip(_runs(source), range(MAX_RUNS), strict=False)]
    tracked = [_tracked(run) for run in runs]
    number_equal_names(tracked)
    return runs_of(tracked, columns, source.shown, NAME)


def _runs(source: Source) -> Iterator[Source]:
    """Yield the log that was named, or the folders of runs."""
    if not source.is_folder:
        if source.first(len(_MARK)) == _MARK:
            yield source
        return
    for place in _PLACES:
        folder = source.inside(place) if place else source
        runs = [run for run in (folder, *folder.folders()) if any(_logs(run))] if folder is not None else []
        yield from runs
        if runs:
            return


def _logs(run: Source) -> Iterator[Source]:
    """Yield the logs of a run in order: the number in a name is that of its first operation."""
    if not run.is_folder:
        yield run
        return
    files = run.files(max_files=MAX_FILES, part_of_name=_LOG, deep=False)
    logs = [(len(name), name, file) for name, file in files if file.first(len(_MARK)) == _MARK]
    yield from (file for _, _, file in sorted(logs, key=lambda log: log[:2]))


def _tracked(source: Source) -> TrackedRun:
    points, settings = PointCollector(), dict[str, Any]()
    last: dict[str, int] = {}
    faulty = 0
    for line in (line for file in _logs(source) for line in file.data.splitlines()):
        operation = _operation(line)
        path = operation.get("path")
        name = "/".join(map(str, path)) if isinstance(path, list) else ""
        if not name:
            faulty += 1
        elif operation.get("type") == "LogFloats" and not name.startswith(OF_NEPTUNE):
            values = operation.get("values")
            faulty += sum(not _take(points, last, name, point) for point in values) if isinstance(values, list) else 1
        elif str(operation.get("type")).startswith("Assign"):
            settings[name] = operation.get("value")
    return _run(source, points, settings, faulty)


def _operation(line: bytes) -> dict[str, Any]:
    """Return the operation in a line, empty where there is none."""
    entry = json_of(line)
    operation = entry.get("obj") if isinstance(entry, dict) else None
    return operation if isinstance(operation, dict) else {}


def _take(points: PointCollector, last: dict[str, int], name: str, point: Any) -> bool:
    """Add a point, and return whether it has a value."""
    value = number(point.get("value")) if isinstance(point, dict) else None
    if value is None:
        return False
    step = step_number(number(point.get("step")))
    last[name] = last.get(name, -1) + 1 if step is None else step
    time = number(point.get("ts"))
    points.add(name, last[name], value, NO_TIME if time is None else time)
    return True


def _run(source: Source, points: PointCollector, settings: Mapping[str, Any], faulty: int) -> TrackedRun:
    given_name = settings.get("sys/name")
    name = writable(given_name if isinstance(given_name, str) and given_name not in ("", _UNNAMED) else source.path.name)
    series, broken = _with_left_out({writable(key): logged for key, logged in points.series().items()})
    run = TrackedRun(name, series)
    run.manifest = Manifest(schema_version="ck.run.v1", name=name)
    own = {key.removeprefix(_SETTINGS): value for key, value in settings.items() if not key.startswith(OF_NEPTUNE)}
    write_config(run.manifest, own)
    if broken:
        run.notes.append(
            f"Neptune leaves out NaN and infinity: {list_names(broken)} is NaN where it is missing beside what was logged with it"
        )
    if faulty:
        run.notes.append(f"{faulty:,} lines or points hold no operation or no number, and were left out")
    return run


def _with_left_out(series: Mapping[str, LoggedSeries]) -> tuple[dict[str, LoggedSeries], list[str]]:
    """Return the series with NaN for values of a loss or gradient norm that Neptune dropped, and the names of those series."""
    whole, names = dict(series), []
    for name, sparse in series.items():
        others = [other for other in series.values() if _was_logged_with(sparse, other)]
        if catalogue_name(name) not in _NEVER_SKIPPED or not others:
            continue
        beside = max(others, key=lambda other: len(other.steps))
        lost = ~np.isin(beside.steps, sparse.steps)
        order = np.concatenate([sparse.order, beside.order[lost]])
        columns = ((sparse.steps, beside.steps), (sparse.values, np.full(len(lost), np.nan)), (sparse.times, beside.times))
        steps, values, times = (np.concatenate([own, other[lost]])[np.argsort(order)] for own, other in columns)
        whole[name] = LoggedSeries(steps, values, times, np.sort(order))
        names.append(name)
    return whole, names


def _was_logged_with(sparse: LoggedSeries, other: LoggedSeries) -> bool:
    """Tell whether another series starts at the same step, has all steps of this one, mostly no others between them, and more."""
    own, known = np.unique(sparse.steps), np.unique(other.steps)
    if not 1 < len(own) < len(known) or own[0] != known[0] or not np.isin(own, known).all():
        return False
    return float(np.median(np.diff(np.searchsorted(known, own)))) == 1
