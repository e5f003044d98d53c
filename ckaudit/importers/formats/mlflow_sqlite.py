"""MLflow's SQLite database, its default store: one row per point of a metric.

A database holds no NaN or infinity: NaN is a 0 with `is_nan` set, infinities are the largest doubles. The points of one metric
are in the order of logging; times in milliseconds give the order between metrics.
"""

import sys
from collections.abc import Mapping
from itertools import accumulate, groupby
from math import inf, nan
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ckaudit.contract.schema.manifest import Manifest, Session
from ckaudit.importers.formats.mlflow import ENDED, tracked_run
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.trackers.points import PointCollector
from ckaudit.importers.trackers.sqlite import databases, opened, tables
from ckaudit.importers.trackers.tracked import TrackedRun, number_equal_names, runs_of, write_config

if TYPE_CHECKING:
    import sqlite3

NAME = "MLflow database"
GENERIC = False

_TABLES = {
    "metrics": ("key", "value", "timestamp", "run_uuid", "step", "is_nan"),
    "runs": ("run_uuid", "name", "status", "start_time", "end_time", "lifecycle_stage"),
}
_LARGEST = sys.float_info.max


def detects(source: Source) -> bool:
    """Tell whether a database has the tables of runs and metrics, or a folder holds such a database."""
    return bool(databases(source, _TABLES))


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read all runs that were not deleted.

    Raises:
        UnreadableError: Where the database is broken, or no run logged a series with a known name.
        UsageError: Where `columns` names something that does not exist.
    """
    source = next(iter(databases(source, _TABLES)), source)
    known = tables(source)
    with opened(source) as database:
        series = _points(database)
        params = _texts(database, "params") if "params" in known else {}
        tags = _texts(database, "tags") if "tags" in known else {}
        rows = database.execute(
            "SELECT run_uuid, name, status, start_time, end_time, lifecycle_stage FROM runs ORDER BY start_time"
        )
        runs = [row for row in rows.fetchall() if isinstance(row[0], str)]
    active = [row for row in runs if row[5] != "deleted"] or runs
    tracked = [
        _tracked(row, series.get(row[0], PointCollector()), params.get(row[0], {}), tags.get(row[0], {})) for row in active
    ]
    number_equal_names(tracked)
    if len(active) < len(runs):
        tracked[0].notes.append(f"{len(runs) - len(active):,} deleted runs of the store were left out")
    return runs_of(tracked, columns, source.shown, NAME)


def _points(database: "sqlite3.Connection") -> dict[str, PointCollector]:
    """Return the points of each run."""
    rows = database.execute(
        "SELECT run_uuid, key, step, value, is_nan, timestamp FROM metrics "
        "WHERE typeof(step) = 'integer' AND typeof(timestamp) = 'integer' AND typeof(value) IN ('real', 'integer') "
        "ORDER BY run_uuid, key, rowid"
    )
    by_run: dict[str, PointCollector] = {}
    for (run, name), group in groupby(rows, key=itemgetter(0, 1)):
        points = list(group)
        by_run.setdefault(str(run), PointCollector()).extend(
            str(name),
            [step for _, _, step, _, _, _ in points],
            [nan if is_nan else _number(value) for _, _, _, value, is_nan, _ in points],
            list(accumulate((time / 1000 for *_, time in points), max)),
        )
    return by_run


def _number(value: float) -> float:
    return inf if value >= _LARGEST else -inf if value <= -_LARGEST else float(value)


def _texts(database: "sqlite3.Connection", table: str) -> dict[str, dict[str, str]]:
    """Return the parameters or the tags of each run."""
    by_run: dict[str, dict[str, str]] = {}
    for run, name, value in database.execute(f"SELECT run_uuid, key, value FROM {table}"):  # noqa: S608  one of two words
        by_run.setdefault(str(run), {})[str(name)] = str(value)
    return by_run


def _tracked(row: tuple[Any, ...], points: PointCollector, params: Mapping[str, str], tags: Mapping[str, str]) -> TrackedRun:
    identity, name, status, start, end, _ = row
    run = tracked_run(tags.get("mlflow.runName") or str(name or ""), identity, points.series(by_time=True))
    run.manifest = Manifest(schema_version="ck.run.v1")
    if commit := tags.get("mlflow.source.git.commit"):
        run.manifest.commit = commit
    if isinstance(start, int) and start >= 0:
        session = Session(start=start / 1000)
        if isinstance(end, int) and end >= start:
            session.end = end / 1000
        run.manifest.sessions = [session]
    write_config(run.manifest, params)
    if str(status) in ENDED:
        run.notes.append(f"MLflow says the run {ENDED[str(status)]}")
    return run
