"""Comet's offline experiments: a zip archive or folder with `experiment.json` and `messages.json`, which has a message per line.

A metric has a name, a value, and the step and the epoch that were set when it was logged. A context such as `validate` is put
before the name. A metric without a step gets the last step that was logged. NaN and infinities are written as words.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import writable
from ckaudit.importers.tables.numbers import number, step_number
from ckaudit.importers.trackers.bundles import Bundle, bundles
from ckaudit.importers.trackers.points import NO_TIME, PointCollector
from ckaudit.importers.trackers.rows import json_of
from ckaudit.importers.trackers.tracked import TrackedRun, number_equal_names, runs_of, write_config

NAME = "Comet offline experiment"
GENERIC = False
SIDE_BY_SIDE = True

_FILES = (_EXPERIMENT, _MESSAGES) = ("experiment.json", "messages.json")
_CONTEXTS = {"validate": "validation"}
_OF_COMET = ("curr_step", "curr_epoch")
_DECODER = msgspec.json.Decoder()


def detects(source: Source) -> bool:
    """Tell whether the source has the two files of an experiment, or is a folder of such experiments."""
    return any(bundles(source, _FILES))


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read all experiments.

    Raises:
        UnreadableError: Where an archive is broken, or no experiment logged a series with a known name.
        UsageError: Where `columns` names something that does not exist.
    """
    tracked = [_tracked(bundle) for bundle in bundles(source, _FILES)]
    number_equal_names(tracked)
    return runs_of(tracked, columns, source.shown, NAME)


def _tracked(bundle: Bundle) -> TrackedRun:
    experiment = bundle.document(_EXPERIMENT)
    points, settings = PointCollector(), dict[str, Any]()
    faulty = last = 0
    for message in _messages(bundle.read(_MESSAGES) or b""):
        if message is None:
            faulty += 1
        elif isinstance(metric := message.get("metric"), dict):
            step = step_number(number(metric.get("step")))
            last = last if step is None else step
            faulty += not _take(points, message, metric, last)
        elif isinstance(parameter := message.get("param"), dict) and parameter.get("paramName") not in _OF_COMET:
            settings[str(parameter.get("paramName"))] = parameter.get("paramValue")
    series = {writable(name): logged for name, logged in points.series().items()}
    run = TrackedRun(bundle.name, series)
    run.manifest = Manifest(schema_version="ck.run.v1", name=writable(str(experiment.get("offline_id") or "")) or UNSET)
    write_config(run.manifest, settings)
    if faulty:
        run.notes.append(f"{faulty:,} lines hold no message, or a metric without a number, and were left out")
    return run


def _messages(data: bytes) -> Iterator[dict[str, Any] | None]:
    """Yield the payload of each line, or None where the line is not a message."""
    for line in data.splitlines():
        try:
            message = _DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            message = json_of(line)
        payload = message.get("payload") if isinstance(message, dict) else None
        yield payload if isinstance(payload, dict) else None


def _take(points: PointCollector, message: Mapping[str, Any], metric: Mapping[str, Any], step: int) -> bool:
    """Add a metric to the points, and return whether its value is a number."""
    value, time = number(metric.get("metricValue")), number(message.get("local_timestamp"))
    if value is None:
        return False
    name, context = str(metric.get("metricName")), message.get("context")
    shown = f"{_CONTEXTS.get(str(context), context)}/{name}" if context else name
    points.add(shown, step, value, NO_TIME if time is None else time / 1000)
    return True
