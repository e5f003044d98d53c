"""`metrics.json` from Sacred's file observer: lists of steps, times and values for each metric.

A step is the number that the program passed, else a count from 0 per metric. Times are in UTC without saying so. A folder of
numbered runs holds one such file per run, with `config.json`; `run.json` names the experiment.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.errors import UnreadableError
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import writable
from ckaudit.importers.tables.numbers import number, step_number
from ckaudit.importers.trackers.bundles import Bundle, bundles
from ckaudit.importers.trackers.points import NO_TIME, PointCollector
from ckaudit.importers.trackers.rows import json_of
from ckaudit.importers.trackers.tracked import TrackedRun, number_equal_names, runs_of, write_config

NAME = "Sacred metrics.json"
GENERIC = False
SIDE_BY_SIDE = True

_METRICS, _CONFIG, _RUN = "metrics.json", "config.json", "run.json"
_HEAD_BYTES = 1024
_START = re.compile(rb'\s*\{\s*"(?:[^"\\]|\\.){1,200}"\s*:\s*\{\s*"(?:steps|timestamps|values)"\s*:\s*\[')


def detects(source: Source) -> bool:
    """Tell whether a file's first member has lists of steps, times and values, or a folder or its subfolders hold such a file."""
    if not source.is_folder:
        return _START.match(source.head) is not None
    return any(_folders(source))


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read all runs.

    Raises:
        UnreadableError: Where a file is truncated, or no run logged a series with a known name.
        UsageError: Where `columns` names something that does not exist.
    """
    if not source.is_folder:
        return runs_of([_tracked("", _metrics(source), {}, {})], columns, source.shown, NAME)
    tracked = []
    for bundle in _folders(source):
        file = bundle.source.inside(_METRICS)
        metrics = {} if file is None else _metrics(file)
        tracked.append(_tracked(bundle.name, metrics, bundle.document(_CONFIG), bundle.document(_RUN)))
    number_equal_names(tracked)
    return runs_of(tracked, columns, source.shown, NAME)


def _folders(source: Source) -> Iterator[Bundle]:
    for bundle in bundles(source, (_METRICS,)):
        file = bundle.source.inside(_METRICS)
        if file is not None and _START.match(file.first(_HEAD_BYTES)):
            yield bundle


def _metrics(file: Source) -> dict[str, Any]:
    value = json_of(file.document)
    if not isinstance(value, dict):
        raise UnreadableError(
            f"{file.shown} starts as the metrics of Sacred, and cannot be read to its end",
            hint="Fetch it again: Sacred writes it anew at each heartbeat.",
        )
    return value


def _tracked(name: str, metrics: Mapping[str, Any], config: Mapping[str, Any], about: Mapping[str, Any]) -> TrackedRun:
    points, faulty = PointCollector(), 0
    for metric, lists in metrics.items():
        steps, times, values = (_list(lists, key) for key in ("steps", "timestamps", "values"))
        known = min(len(steps), len(values))
        faulty += max(len(steps), len(values)) - known
        for place in range(known):
            step, value = step_number(number(steps[place])), _value(values[place])
            if step is None or value is None:
                faulty += 1
            else:
                points.add(metric, step, value, _time(times[place]) if place < len(times) else NO_TIME)
    run = TrackedRun(writable(name), {writable(key): series for key, series in points.series(by_time=False).items()})
    experiment = about.get("experiment")
    shown = experiment.get("name") if isinstance(experiment, dict) else None
    run.manifest = Manifest(schema_version="ck.run.v1", name=writable(str(shown)) if shown else UNSET)
    write_config(run.manifest, config)
    if (status := str(about.get("status") or "")) in ("FAILED", "INTERRUPTED", "TIMEOUT"):
        run.notes.append(f"Sacred says that the run ended as {status}")
    if faulty:
        run.notes.append(f"{faulty:,} entries hold no step and number, and were left out")
    return run


def _list(lists: Any, key: str) -> Sequence[Any]:
    value = lists.get(key) if isinstance(lists, dict) else None
    return value if isinstance(value, list) else []


def _value(cell: Any) -> float | None:
    """Return a number; numpy numbers may be written as an object with a `value`."""
    return number(cell.get("value") if isinstance(cell, dict) else cell)


def _time(text: Any) -> float:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() if isinstance(text, str) else NO_TIME
    except (ValueError, OverflowError):
        return NO_TIME
