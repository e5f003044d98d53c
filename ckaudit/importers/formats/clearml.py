"""ClearML's offline sessions: a folder or zip archive with `task.json` and `metrics.jsonl`, which has a list of events per line.

A scalar has a title (`metric`), a series in it (`variant`) and the iteration that the program passed. Its name is title and
series, or one of them where they are the same. ClearML writes 0 for NaN and for infinity. A loss or a gradient norm that falls to
exactly 0 from a number that is not small is therefore read as NaN.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import catalogue_name, list_names, writable
from ckaudit.importers.tables.numbers import number, step_number
from ckaudit.importers.trackers.bundles import Bundle, bundles
from ckaudit.importers.trackers.points import NO_TIME, Floats, LoggedSeries, PointCollector
from ckaudit.importers.trackers.rows import json_of
from ckaudit.importers.trackers.tracked import TrackedRun, number_equal_names, runs_of, write_config

NAME = "ClearML offline session"
GENERIC = False
SIDE_BY_SIDE = True

_TASK, _METRICS = "task.json", "metrics.jsonl"
_SCALAR = "training_stats_scalar"
_NEVER_ZERO = ("train_loss_raw", "val_loss", "grad_global_norm")


def detects(source: Source) -> bool:
    """Tell whether the source has the two files of a session, or is a folder of such sessions."""
    return any(bundles(source, (_TASK, _METRICS)))


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read all sessions.

    Raises:
        UnreadableError: Where an archive is broken, or no session logged a series with a known name.
        UsageError: Where `columns` names something that does not exist.
    """
    tracked = [_tracked(bundle) for bundle in bundles(source, (_TASK, _METRICS))]
    number_equal_names(tracked)
    return runs_of(tracked, columns, source.shown, NAME)


def _tracked(bundle: Bundle) -> TrackedRun:
    task = bundle.document(_TASK)
    points, faulty = PointCollector(), 0
    for line in (bundle.read(_METRICS) or b"").splitlines():
        events = json_of(line)
        if not isinstance(events, list):
            faulty += 1
            continue
        for event in events:
            if isinstance(event, dict) and event.get("type") == _SCALAR:
                faulty += not _take(points, event)
    name = str(task.get("name") or bundle.name)
    series, zeros = _without_zeros({writable(key): logged for key, logged in points.series().items()})
    run = TrackedRun(writable(name), series, manifest=Manifest(schema_version="ck.run.v1", name=writable(name) or UNSET))
    write_config(run.manifest, _settings(task.get("hyperparams")))
    if faulty:
        run.notes.append(f"{faulty:,} lines or events hold no scalar with a value and a step, and were left out")
    if zeros:
        run.notes.append(f"ClearML writes 0 for NaN and infinity: the 0 in {list_names(zeros)} were read as NaN")
    return run


def _take(points: PointCollector, event: Mapping[str, Any]) -> bool:
    """Add a scalar to the points, and return whether it has a value and a step."""
    value, step, time = (number(event.get(key)) for key in ("value", "iter", "timestamp"))
    place = step_number(step)
    if value is None or place is None:
        return False
    title, variant = str(event.get("metric") or ""), str(event.get("variant") or "")
    name = title if variant in ("", title) else f"{title}/{variant}" if title else variant
    points.add(name, place, value, NO_TIME if time is None else time / 1000)
    return True


def _without_zeros(series: Mapping[str, LoggedSeries]) -> tuple[dict[str, LoggedSeries], list[str]]:
    """Return the series with NaN for zeros that ClearML wrote for NaN, and the names of the series with such zeros."""
    read: dict[str, LoggedSeries] = {}
    names = []
    for name, logged in series.items():
        lost = _are_no_numbers(logged.values) if catalogue_name(name) in _NEVER_ZERO else np.zeros(len(logged.values), bool)
        read[name] = LoggedSeries(logged.steps, np.where(lost, np.nan, logged.values), logged.times, logged.order)
        names += [name] if lost.any() else []
    return read, names


def _are_no_numbers(values: Floats, *, min_fall: float = 1e-3) -> NDArray[np.bool_]:
    """Return which values are 0 while the last nonzero value before them is larger than `min_fall`.

    A loss that is really learnt down to 0 passes through smaller and smaller numbers first, and so does its gradient.
    """
    before, lost = 0.0, []
    for value in values.tolist():
        before = value or before
        lost.append(value == 0 and abs(before) > min_fall)
    return np.array(lost, bool)


def _settings(sections: Any) -> dict[str, Any]:
    """Return the hyperparameters; those of the section General keep their names, others get the section as a prefix."""
    settings: dict[str, Any] = {}
    for section, entries in sections.items() if isinstance(sections, dict) else ():
        for name, entry in entries.items() if isinstance(entries, dict) else ():
            if isinstance(entry, dict) and "value" in entry:
                settings[str(name) if section == "General" else f"{section}/{name}"] = entry["value"]
    return settings
