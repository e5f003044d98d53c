"""DVCLive's folder: `plots/metrics/` with a table `NAME.tsv` for each metric; slashes in a name become folders.

A step is DVCLive's own count of `next_step` calls, from 0; most of its callbacks call it once per epoch. NaN and infinity are
written as words. `metrics.json` beside it repeats the last values, `params.yaml` holds plain settings.
"""

from collections.abc import Iterator, Mapping

from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import writable
from ckaudit.importers.tables.numbers import number, step_number
from ckaudit.importers.trackers.points import NO_TIME, PointCollector
from ckaudit.importers.trackers.tracked import TrackedRun, plain_settings, runs_of, write_config

NAME = "DVCLive folder"
GENERIC = False
SIDE_BY_SIDE = True
MAX_FILES = 5000

_METRICS, _PARAMS = "plots/metrics", "params.yaml"
_HEADERS = (b"step\t", b"timestamp\tstep\t")


def detects(source: Source) -> bool:
    """Tell whether the folder, or the folder `dvclive` inside it, has a table of a metric that begins with its step."""
    return any(_folders(source))


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the run.

    Raises:
        UnreadableError: Where no metric has a known name, or none holds a value.
        UsageError: Where `columns` names something that does not exist.
    """
    return runs_of([_tracked(folder) for folder in _folders(source)], columns, source.shown, NAME)


def _folders(source: Source) -> Iterator[Source]:
    """Yield the folder itself, or the folder `dvclive` inside it."""
    for folder in (source, source.inside("dvclive")):
        if folder is not None and next(_tables(folder), None) is not None:
            yield folder
            return


def _tables(folder: Source) -> Iterator[tuple[str, Source]]:
    """Yield the tables of metrics with the names of the metrics."""
    metrics = folder.inside(_METRICS)
    for path, file in metrics.files(max_files=MAX_FILES, part_of_name=".tsv") if metrics is not None else ():
        if file.first(20).startswith(_HEADERS):
            yield path.removesuffix(".tsv"), file


def _tracked(folder: Source) -> TrackedRun:
    points, faulty = PointCollector(), 0
    for name, file in _tables(folder):
        header, *lines = file.text.splitlines()
        timed = header.startswith("timestamp")
        for line in lines:
            cells = line.split("\t")
            step = step_number(number(cells[timed])) if len(cells) == 2 + timed else None
            value = number(cells[-1])
            if step is None or value is None:
                faulty += 1
                continue
            time = number(cells[0]) if timed else None
            points.add(name, step, value, NO_TIME if time is None else time / 1000)
    run = TrackedRun("", {writable(name): logged for name, logged in points.series().items()})
    run.manifest = Manifest(schema_version="ck.run.v1", name=writable(folder.path.resolve().parent.name) or UNSET)
    run.notes.append("steps are DVCLive's own, from 0: calls of next_step, with most of its callbacks one an epoch")
    if faulty:
        run.notes.append(f"{faulty:,} lines of metrics hold no step and number, and were left out")
    write_config(run.manifest, plain_settings(folder.inside(_PARAMS)))
    return run
