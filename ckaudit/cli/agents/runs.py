"""The runs below folders, newest first: run folders and logs, both recognised by file names."""

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ckaudit.audit.load_run import TRAINER_STATE
from ckaudit.contract.io.files import MANIFEST_NAME
from ckaudit.contract.io.folder import is_own_name

MAX_SEEN = 50_000
"""Maximum number of files scanned, so that a list never walks a whole disk."""
LOGS = (".csv", ".csv.gz", ".csv.zst", ".jsonl", ".log", ".ndjson", ".parquet", ".tsv", ".wandb", TRAINER_STATE)
EVENTS = "events.out.tfevents."


class ListedRun(NamedTuple):
    """A possible run.

    Attributes:
        path: Path of the run.
        kind: Kind of the run.
        changed: Unix time of its newest file.
    """

    path: Path
    kind: str
    changed: float


def list_runs(folders: Sequence[Path]) -> tuple[list[ListedRun], bool]:
    """Return the runs below some folders, newest first, and whether all folders were scanned; links and hidden ones are not."""
    listed: list[ListedRun] = []
    seen = 0
    for top in folders:
        for place, inner, names in os.walk(top):
            seen += len(names)
            if seen > MAX_SEEN:
                return _newest_first(listed), False
            folder = Path(place)
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            own = [name for name in names if name == MANIFEST_NAME or is_own_name(name)]
            if files := own or [name for name in names if name == TRAINER_STATE]:
                kind = "run folder" if own else "folder of a Hugging Face Trainer"
                listed.append(ListedRun(folder, kind, max(_changed(folder / name) for name in files)))
                inner.clear()
            else:
                listed += _logs(folder, names)
    return _newest_first(listed), True


def run_line(run: ListedRun, name: str) -> str:
    """Return a line about a run."""
    return f"{name} ({run.kind}, {datetime.fromtimestamp(run.changed, UTC):%Y-%m-%d %H:%M} UTC)"


def _logs(folder: Path, names: Sequence[str]) -> Iterator[ListedRun]:
    for name in names:
        path = folder / name
        if (name.endswith(LOGS) or name.startswith(EVENTS)) and path.is_file() and not path.is_symlink():
            yield ListedRun(path, "log", _changed(path))


def _newest_first(runs: Sequence[ListedRun]) -> list[ListedRun]:
    return sorted(set(runs), key=lambda run: (-run.changed, str(run.path)))


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
