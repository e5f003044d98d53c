"""The scalars of whatever the user named, every session of them."""

from pathlib import Path

from ckaudit.audit.load_run import open_run
from ckaudit.contract.schema.import_options import NOTHING_SAID, Choice
from ckaudit.errors import UnreadableError
from ckaudit.run.read import Progress
from ckaudit.run.scalars import FILLED, Logged, SessionLogs, logged


def scalars_of(path: Path, *, choice: Choice = NOTHING_SAID, progress: Progress | None = None) -> Logged:
    """Read the scalars of a run folder, one of its files, or a log that an importer knows.

    Args:
        path: The run.
        choice: What a foreign log does not say itself.
        progress: Called with pieces done and pieces in all.

    Raises:
        UnreadableError: Where there is no run, or none with a scalar.
        UsageError: Where `choice` fits nothing that is there.
    """
    logs = SessionLogs()
    found = logged(open_run(path, reads=FILLED, choice=choice, progress=progress, logs=logs), logs)
    if not found:
        raise UnreadableError(f"{path} holds no scalar", hint="Only scalars are exported; ckaudit metrics writes what follows.")
    return found
