"""trackio: an SQLite database per project, with a row per call of `log`, whose values are one JSON object.

Steps are the numbers that the program passed, else trackio's own count of calls from 0. NaN and infinities are words. A row only
holds what its call logged. Rows are written in batches, and several can have the time of one batch.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.tables.numbers import step_number
from ckaudit.importers.trackers.points import NO_TIME
from ckaudit.importers.trackers.rows import RowCollector, json_of
from ckaudit.importers.trackers.sqlite import databases, opened, tables
from ckaudit.importers.trackers.tracked import TrackedRun, number_equal_names, runs_of, write_config

if TYPE_CHECKING:
    import sqlite3

NAME = "trackio database"
GENERIC = False

_TABLES = {"metrics": ("timestamp", "run_name", "step", "metrics")}


def detects(source: Source) -> bool:
    """Tell whether a database has the columns of the table of metrics, or a folder holds such databases, one per project."""
    return bool(databases(source, _TABLES))


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read all runs of a project, or of all projects in a folder.

    Raises:
        UnreadableError: Where the database is broken, or no run logged a series with a known name.
        UsageError: Where `columns` names something that does not exist.
    """
    tracked = [run for file in databases(source, _TABLES) or [source] for run in _project(file, columns)]
    number_equal_names(tracked)
    return runs_of(tracked, {name: column for name, column in columns.items() if name != "step"}, source.shown, NAME)


def _project(source: Source, columns: Mapping[str, str]) -> list[TrackedRun]:
    """Return the runs of one database."""
    columns_of_tables = tables(source)
    key = "run_id" if "run_id" in columns_of_tables.get("metrics", ()) else "run_name"
    runs: dict[str, RowCollector] = {}
    names: dict[str, str] = {}
    faulty: dict[str, int] = {}
    with opened(source) as database:
        for run, name, time, step, members in database.execute(
            f"SELECT {key}, run_name, timestamp, step, metrics FROM metrics ORDER BY rowid"  # noqa: S608  one of two words
        ):
            rows = runs.setdefault(str(run), RowCollector("trackio"))
            names[str(run)] = str(name)
            faulty[str(run)] = faulty.get(str(run), 0) + (not _take(rows, time, step, members))
        configs = dict(_configs(database, key)) if "configs" in columns_of_tables else {}
    return [_tracked(names[run], rows, faulty[run], configs.get(run, {}), columns) for run, rows in runs.items()]


def _take(rows: RowCollector, time: Any, step: Any, members: Any) -> bool:
    """Add a row, and return whether it has a step and values."""
    values = _object(members)
    number = step_number(step) if isinstance(step, int | float) else None
    if values is None or number is None:
        return False
    rows.begin(number, _time(time))
    for name, value in values.items():
        rows.take(name, value)
    return True


def _object(text: Any) -> dict[str, Any] | None:
    """Return a JSON object, or None where the cell is not one; newer versions write it as bytes."""
    if not isinstance(text, str | bytes):
        return None
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        value = json_of(text)
    return value if isinstance(value, dict) else None


def _time(text: Any) -> float:
    """Return Unix seconds; a time without a zone is in the machine's unknown local time, and is not used."""
    try:
        time = datetime.fromisoformat(text) if isinstance(text, str) else None
        return time.timestamp() if time is not None and time.tzinfo is not None else NO_TIME
    except (ValueError, OverflowError):
        return NO_TIME


def _configs(database: "sqlite3.Connection", key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    columns = {row[1] for row in database.execute("SELECT * FROM pragma_table_info('configs')")}
    if not {key, "config"} <= columns:
        return
    for run, text in database.execute(f"SELECT {key}, config FROM configs"):  # noqa: S608  one of two words
        config = _object(text) or {}
        yield str(run), {name: value for name, value in config.items() if not name.startswith("_")}


def _tracked(name: str, rows: RowCollector, faulty: int, config: Mapping[str, Any], columns: Mapping[str, str]) -> TrackedRun:
    run = rows.tracked(name, columns)
    write_config(run.manifest, config)
    run.manifest.name = name
    if faulty:
        run.notes.append(f"{faulty:,} rows hold no step or no JSON object and were left out")
    return run
