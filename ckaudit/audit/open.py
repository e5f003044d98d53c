"""Whatever the user named becomes a run: a run folder, checkpoint files, or another tracker's log."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from ckaudit.contract.files import CHECKPOINT_NAME, MANIFEST_NAME, SCALARS_NAME
from ckaudit.contract.folder import list_folder, shown_name
from ckaudit.errors import UnreadableError
from ckaudit.run.read import Progress, read_run
from ckaudit.run.rows import run_of_rows
from ckaudit.run.run import Run

_HEAD = 4096
TRAINER_STATE = "trainer_state.json"
LOGS = (".csv", ".csv.gz", ".csv.zst", ".tsv", TRAINER_STATE)


def open_run(path: Path, *, reads: Iterable[str], columns: Mapping[str, str], progress: Progress | None = None) -> Run:
    """Read the run at `path`.

    Args:
        path: A run folder, one of its files, or a log that an importer knows.
        reads: Checkpoint paths that are wanted.
        columns: Names that a foreign log gives to catalogue names, such as {"loss": "train/loss"}.
        progress: Called with files done and files in all.

    Raises:
        UnreadableError: Where there is no run.
    """
    if not path.exists() and not path.is_symlink():
        raise UnreadableError(f"{path} does not exist", hint="Name a run folder, a checkpoint file or a trainer's log.")
    if _is_trainers_folder(path):
        path = path / TRAINER_STATE
    if path.is_dir() or _is_ours(path):
        _refuse_a_folder_of_logs(path)
        return read_run(path, reads=reads, progress=progress)
    from ckaudit.importers import import_source

    imported = import_source(path, columns=columns)
    return run_of_rows(str(path), imported.rows, manifest=imported.manifest, notes=imported.notes)


def is_run_folder(path: Path) -> bool:
    """Return whether `path` is a run folder, to which commands can add, and not the log of another program or a single file."""
    return path.is_dir() and not _is_trainers_folder(path)


def whole_of(path: Path) -> str:
    """Return the folder of the run that `path` is only one file of; empty: it is the whole, or the log of another program."""
    return "" if path.is_dir() or not _is_ours(path) else str(path.parent)


def _is_trainers_folder(path: Path) -> bool:
    return path.is_dir() and (path / TRAINER_STATE).is_file() and not (path / MANIFEST_NAME).exists()


def _refuse_a_folder_of_logs(path: Path) -> None:
    """Raise `UnreadableError` where a folder holds logs of other programs and no run."""
    if not path.is_dir() or not list_folder(path).is_empty():
        return
    logs = sorted(each.name for each in path.iterdir() if each.name.endswith(LOGS) and each.is_file())
    if logs:
        more = f" and {len(logs) - 1} more" if len(logs) > 1 else ""
        hint = f"It holds {shown_name(logs[0])}{more}; name that file."
        raise UnreadableError(f"{shown_name(path.name)} holds no checkpoint and no scalars.jsonl", hint=hint)


def _is_ours(path: Path) -> bool:
    """Tell by its name, or else by its first bytes, whether a file follows our own contract."""
    if CHECKPOINT_NAME.match(path.name) or SCALARS_NAME.match(path.name):
        return True
    try:
        with path.open("rb") as stream:
            return b'"ck.analysis.v' in stream.read(_HEAD)
    except OSError:
        return False
