"""Loading of a run from a user's path: a run folder, checkpoint files, or another tracker's log."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.contract.io.files import MANIFEST_NAME
from ckaudit.contract.io.folder import first_bytes, holds_run, is_own_name, shown_name
from ckaudit.contract.schema.import_options import NO_IMPORT_OPTIONS, ImportOptions
from ckaudit.contract.schema.numbers import ignoring_float_errors
from ckaudit.errors import UnreadableError, UsageError
from ckaudit.run.builder import run_of_table
from ckaudit.run.read import Progress, read_run
from ckaudit.run.run import Run
from ckaudit.run.scalars import SessionLogs
from ckaudit.run.units import in_catalogue_units

if TYPE_CHECKING:
    from ckaudit.importers import Imported
    from ckaudit.run.scalars import LoggedScalars


_HEAD = 4096
TRAINER_STATE = "trainer_state.json"
LOSS_CURVES = "training_loss_curve*.json"
MERGED = b'"checkpoints"'  # a viewer's file with several checkpoints, read by an importer


@ignoring_float_errors
def open_run(
    path: Path,
    *,
    reads: Iterable[str],
    import_options: ImportOptions = NO_IMPORT_OPTIONS,
    progress: Progress | None = None,
    logs: SessionLogs | None = None,
) -> Run:
    """Read the run at `path`.

    Args:
        path: A run folder, one of its files, or a log that an importer knows.
        reads: Wanted checkpoint paths.
        import_options: Facts that the log of another program lacks, such as which column holds the loss.
        progress: Called with the number of files done and their total.
        logs: Gathers the lines of each session separately, for callers that need them.

    Raises:
        UnreadableError: If there is no run.
        UsageError: If `import_options` matches nothing in the log.
    """
    if not path.exists() and not path.is_symlink():
        raise UnreadableError(f"{path} does not exist", hint="Name a run folder, a checkpoint file or a trainer's log.")
    chosen = path if is_ours(path) else _foreign(path, import_options)
    if isinstance(chosen, Path):
        run = read_run(chosen, reads=reads, progress=progress, logs=logs)
        if chosen != path:
            run = replace(run, notes=(f"found in {shown_name(str(chosen.relative_to(path)))}", *run.notes))
        elif unused := [option for option, given in (("--map", import_options.columns), ("--run", import_options.run)) if given]:
            run = replace(run, notes=(*run.notes, f"not a log of another program: {' and '.join(unused)} had no effect"))
    else:
        run = _run_of_log(path, chosen, reads=reads, logs=logs)
    return _as_chosen(run, import_options)


def open_runs(
    path: Path, *, reads: Iterable[str], import_options: ImportOptions = NO_IMPORT_OPTIONS, max_runs: int | None = None
) -> Iterator[tuple[str, Run]]:
    """Read every run at `path`, one after the other, with its name; a single run has an empty name.

    Args:
        path: A run folder, one of its files, or a log that an importer knows, which may hold many.
        reads: Wanted checkpoint paths.
        import_options: Facts that the log of another program lacks.
        max_runs: Largest number of runs; the user has to name one of more.

    Raises:
        UnreadableError: If there is no run.
        UsageError: If `import_options` matches nothing in the log, or there are too many runs.
    """
    if import_options.run or not path.exists() or is_ours(path):
        yield "", open_run(path, reads=reads, import_options=import_options)
        return
    from ckaudit.importers import import_runs, run_named

    imported = import_runs(path, import_options=import_options)
    if max_runs is not None and len(imported) > max_runs:
        run_named(imported, "", path)
    for one in imported:
        yield one.name if len(imported) > 1 else "", _as_chosen(_run_of_log(path, one, reads=reads), import_options)


def _run_of_log(path: Path, imported: "Imported", *, reads: Iterable[str], logs: SessionLogs | None = None) -> Run:
    return run_of_table(
        str(path),
        imported.table,
        documents=imported.documents,
        reads=reads,
        manifest=imported.manifest,
        notes=imported.notes,
        logs=logs,
    )


def _as_chosen(run: Run, import_options: ImportOptions) -> Run:
    """Return a run in the catalogue's units, with the slices that the user named."""
    run = in_catalogue_units(run, import_options.units)
    return run if import_options.tau_slices is None else replace(run, tau_slices=import_options.tau_slices)


def _foreign(path: Path, import_options: ImportOptions) -> "Imported | Path":
    """Return the run of another program at or below `path`; a path if it is a run folder."""
    from ckaudit.importers import import_source, is_one_log, logs_below

    if not path.is_dir() or import_options.format or is_one_log(path):
        return import_source(path, import_options=import_options)
    logs = logs_below(path, import_options=import_options)
    picked = logs.pick(import_options.run, shown_name(path.name))
    return picked if isinstance(picked, Path) else replace(picked, notes=(*picked.notes, *logs.notes))


def at_step(run: Run, step: int | None) -> Run:
    """Return a run as known at the end of `step`, with a note if that cuts something off; None means the whole run.

    Raises:
        UsageError: If nothing is recorded by then.
    """
    if step is None:
        return run
    return replace(run.until(step), notes=(*run.notes, *_notes_on_step(run, step)))


def _notes_on_step(run: Run, step: int) -> list[str]:
    last, steps = run.last_step, run.checkpoint_steps
    recorded = (*run.scalars.values(), *run.sections.values())
    earliest = min((int(series.steps[0]) for series in recorded if len(series.steps)), default=None)
    if earliest is None or step < earliest:
        raise UsageError(f"nothing was recorded at or before step {step}", hint=f"The record starts at step {earliest}.")
    if last is not None and step > last:
        return [f"step {step} is beyond the record, which ends at step {last}"]
    if len(steps) and step not in steps:
        before = steps[steps <= step]
        latest = f"the latest before it is {int(before[-1])}" if len(before) else "there is none before it"
        return [f"no checkpoint at step {step}: {latest}"]
    return []


def scalars_of(
    path: Path, *, import_options: ImportOptions = NO_IMPORT_OPTIONS, progress: Progress | None = None
) -> "LoggedScalars":
    """Read the scalars of all sessions of a run folder, one of its files, or a log that an importer knows.

    Args:
        path: The run.
        import_options: Facts that the log of another program lacks.
        progress: Called with the number of pieces done and their total.

    Raises:
        UnreadableError: If there is no run, or none with a scalar.
        UsageError: If `import_options` matches nothing in the log.
    """
    from ckaudit.run.scalars import FILLED, logged_scalars

    logs = SessionLogs()
    scalars = logged_scalars(open_run(path, reads=FILLED, import_options=import_options, progress=progress, logs=logs), logs)
    if not scalars:
        raise UnreadableError(f"{path} holds no scalar", hint="Only scalars are exported; ckaudit metrics writes what follows.")
    return scalars


def is_ours(path: Path) -> bool:
    """Tell whether a folder is a run folder, or a file is one of its files, by its name or its first bytes.

    An unknown folder counts as a run folder without files.
    """
    if path.is_dir():
        if holds_run(path) or _is_manifest(path / MANIFEST_NAME):
            return not _is_trainers_folder(path)
        return not _is_known(path)
    if is_own_name(path.name):
        return True
    try:
        head = first_bytes(path, _HEAD)
    except OSError:
        return False
    return b'"ck.analysis.v' in head and MERGED not in head


def is_run_folder(path: Path) -> bool:
    """Return whether `path` is a run folder, to which commands can add, and neither another program's log nor a single file."""
    return path.is_dir() and is_ours(path)


def run_folder_of(path: Path) -> str:
    """Return the run folder of a single file at `path`; empty for a whole run or the log of another program."""
    return "" if path.is_dir() or not is_ours(path) else str(path.parent)


def _is_manifest(path: Path) -> bool:
    """Tell whether a file is or may be ckaudit's `run.json`: Sacred writes a file of that name beside its metrics."""
    if not path.exists() or not (path.parent / "metrics.json").is_file():
        return path.exists()
    try:
        return b'"ck.run.v' in first_bytes(path, _HEAD)
    except OSError:
        return True


def _is_trainers_folder(path: Path) -> bool:
    """Tell whether another program wrote its log in a folder beside checkpoints, so that an importer reads both."""
    if (path / MANIFEST_NAME).exists():
        return False
    return (path / TRAINER_STATE).is_file() or any(path.glob(LOSS_CURVES))


def _is_known(folder: Path) -> bool:
    """Tell whether another program wrote a folder, or whether a log or a run is below it."""
    from ckaudit.importers import holds_known_log, is_known

    if is_known(folder):
        return True
    # a run may begin in the meantime
    return holds_known_log(folder) and not holds_run(folder)
