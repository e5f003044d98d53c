"""MLflow's file store: `mlruns/EXPERIMENT/RUN/metrics/NAME`, with a line "milliseconds value step" per point.

Each metric is a file that is appended to, so a run that went back has some steps twice; only times give the order
between metrics. Older stores omit the step: it is then 0. NaN and infinities are words. Each parameter and each tag is a file,
and `meta.yaml` says what a folder is.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import accumulate

from msgspec import Struct

from ckaudit.contract.schema.manifest import Manifest, Session
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import shorten_name, writable
from ckaudit.importers.tables.numbers import float_of, number, step_number
from ckaudit.importers.trackers.points import LoggedSeries, PointCollector
from ckaudit.importers.trackers.tracked import TrackedRun, number_equal_names, runs_of, write_config

NAME = "MLflow file store"
GENERIC = False
META = "meta.yaml"
MAX_RUNS = 2000
MAX_FILES = 20_000
_LINE = re.compile(r"^(\w+):\s+(.*)$")
_OF_A_RUN = ("run_id", "run_uuid")
ENDED = {"RUNNING": "is still running, or was cut off", "FAILED": "failed", "KILLED": "was killed"}
"""How a run ended that did not finish, by status name."""
NUMBERED = {"1": "RUNNING", "4": "FAILED", "5": "KILLED"}
"""Status names by the number that a file store writes."""
_SYSTEM = "system/"
_MAX_NAME_LENGTH = 200


class _Unreadable(Struct):
    """Counts of what could not be read in a run's metrics."""

    torn: int = 0
    faulty: int = 0


def detects(source: Source) -> bool:
    """Tell whether the folder, or one inside it, has the file that describes a run or an experiment."""
    return source.is_folder and next(_runs(source), None) is not None


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read all runs of a store or an experiment, or the one run that was named.

    Raises:
        UnreadableError: Where no run logged a series with a known name.
        UsageError: Where `columns` names something that does not exist.
    """
    folders = list(_runs(source))
    active = [folder for folder in folders if folder[1].get("lifecycle_stage") != "deleted"] or folders
    tracked = [_tracked(folder, meta) for folder, meta in active[:MAX_RUNS]]
    number_equal_names(tracked)
    if len(active) < len(folders):
        tracked[0].notes.append(f"{len(folders) - len(active):,} deleted runs of the store were left out")
    if len(active) > MAX_RUNS:
        tracked[0].notes.append(
            f"only the first {MAX_RUNS:,} runs of {len(active):,} were read: name the folder of an experiment"
        )
    return runs_of(tracked, columns, source.shown, NAME)


def _runs(source: Source) -> Iterator[tuple[Source, dict[str, str]]]:
    """Yield each run at most two folders deep, with its description."""
    meta = _meta(source)
    if any(name in meta for name in _OF_A_RUN) and source.inside("metrics") is not None:
        yield source, meta
        return
    for folder in source.folders():
        inner = _meta(folder)
        if any(name in inner for name in _OF_A_RUN):
            yield folder, inner
        elif "experiment_id" in inner:
            yield from (
                (run, meta_of_run) for run in folder.folders() if any(name in (meta_of_run := _meta(run)) for name in _OF_A_RUN)
            )


def _meta(folder: Source) -> dict[str, str]:
    """Return the plain members of `meta.yaml`: one word or number per line, perhaps quoted."""
    file = folder.inside(META)
    if file is None or file.is_folder:
        return {}
    matches = [_LINE.match(line) for line in file.text.splitlines()]
    return {match[1]: _unquoted(match[2].strip()) for match in matches if match}


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def _tracked(folder: Source, meta: Mapping[str, str]) -> TrackedRun:
    points, odd = PointCollector(), _Unreadable()
    for name, file in _files(folder, "metrics"):
        _take(points, name, file, odd)
    tags = {name: file.text.strip() for name, file in _files(folder, "tags")}
    run = tracked_run(
        tags.get("mlflow.runName") or meta.get("run_name", ""),
        meta.get("run_id") or meta.get("run_uuid", ""),
        points.series(by_time=True),
    )
    manifest = run.manifest = Manifest(schema_version="ck.run.v1")
    if commit := tags.get("mlflow.source.git.commit"):
        manifest.commit = commit
    start, end = (step_number(number(meta.get(name))) for name in ("start_time", "end_time"))
    if start is not None:
        manifest.sessions = [Session(start=start / 1000)] if end is None else [Session(start=start / 1000, end=end / 1000)]
    write_config(run.manifest, {name: file.text for name, file in _files(folder, "params")})
    if (status := meta.get("status", "")) in NUMBERED:
        run.notes.append(f"MLflow says the run {ENDED[NUMBERED[status]]}")
    if odd.torn:
        run.notes.append(f"{odd.torn:,} metrics end in the middle of a line, which was left out")
    if odd.faulty:
        run.notes.append(f"{odd.faulty:,} lines of metrics are no time, value and step and were left out")
    return run


def _files(folder: Source, part: str) -> Iterator[tuple[str, Source]]:
    """Yield the files of a part of a run; slashes in a name are folders."""
    inner = folder.inside(part)
    if inner is not None and inner.is_folder:
        yield from inner.files(max_files=MAX_FILES)


def _take(points: PointCollector, name: str, file: Source, odd: _Unreadable) -> None:
    whole, _, rest = file.text.rpartition("\n")
    odd.torn += bool(rest.strip())
    fields = whole.split()
    lines = whole.count("\n") + 1
    if len(fields) == 3 * lines:
        try:
            times = [int(field) / 1000 for field in fields[0::3]]
            points.extend(
                name, [int(field) for field in fields[2::3]], [float_of(field) for field in fields[1::3]], _forward(times)
            )
        except (ValueError, OverflowError):
            pass
        else:
            return
    read = [_point(line) for line in whole.split("\n") if line.strip()]
    good = [point for point in read if point is not None]
    odd.faulty += len(read) - len(good)
    points.extend(name, [step for _, _, step in good], [value for _, value, _ in good], _forward([time for time, _, _ in good]))


def _forward(times: list[float]) -> list[float]:
    """Return times that never decrease: the order in the file is reliable, the clock is not."""
    return list(accumulate(times, max))


def _point(line: str) -> tuple[float, float, int] | None:
    parts = line.split()
    time, value = (number(parts[0]), number(parts[1])) if len(parts) > 1 else (None, None)
    step = step_number(number(parts[2])) if len(parts) > 2 else 0
    return None if time is None or value is None or step is None else (time / 1000, value, step)


# Shared by both stores of MLflow, files and tables.
def tracked_run(name: str, identity: str, series: Mapping[str, LoggedSeries]) -> TrackedRun:
    """Return a run from its name, id and series; machine metrics have step counts of their own and are left out."""
    of_training = {metric: points for metric, points in series.items() if not metric.startswith(_SYSTEM)}
    run = TrackedRun(writable((name or identity)[:_MAX_NAME_LENGTH]), of_training)
    if len(of_training) < len(series):
        run.notes.append(f"{len(series) - len(of_training):,} series of the machine count samples, no updates, and were left out")
    run.notes.append(f"its id is {shorten_name(identity)}")
    return run
