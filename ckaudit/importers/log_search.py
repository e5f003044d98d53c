"""Search for logs below a folder: each is recognized by its contents, read, and named by its path.

Links are not followed, hidden folders and program folders are skipped, and the search has limits: notes say what was not
searched. Run folders of ckaudit are found but not read; the caller decides about them.
"""

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from ckaudit.contract.io.files import CHECKPOINT_NAME, MANIFEST_NAME, SCALARS_PATTERN
from ckaudit.contract.io.folder import holds_run, shown_name
from ckaudit.contract.schema.import_options import ImportOptions
from ckaudit.errors import CkauditError, UnreadableError, UsageError
from ckaudit.importers.importer import Imported, Importer, Source
from ckaudit.importers.names import list_names, shorten_name, writable
from ckaudit.importers.policy_columns import read_with

MAX_ENTRIES = 20_000
MAX_DEPTH = 8
MAX_READ = 50
MAX_BYTES = 2**29
RUN_FOLDER = "run folder of ckaudit"
BESIDE = "beside it lie"
MAX_LISTED = 20
MAX_SHOWN = 100
_ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet", ".log", ".txt", ".out", ".zip", ".db")
_PACKED = (".gz", ".zst")
_PARTS_OF_NAMES = ("tfevents", ".wandb", "meta.yaml", ".sst")
_ARCHIVE = ".zip"
_OF_PROGRAMS = frozenset({"node_modules", "__pycache__", "site-packages", "venv"})
_OF_A_TRAINING = {"train_loss_raw", "val_loss", "train_ppl", "val_ppl", "grad_global_norm", "learning_rate"}
Detect = Callable[[Source], "Importer | None"]


class FoundLogs(Struct):
    """The logs below a folder.

    Attributes:
        runs: All runs that could be read, named by their paths.
        folders: Run folders of ckaudit, by their paths below the folder.
        notes: What was not searched, or could not be read.
        errors: Why logs could not be read.
    """

    runs: list[Imported] = field(default_factory=list)
    folders: dict[str, Path] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    errors: list[CkauditError] = field(default_factory=list)

    def pick(self, wanted: str, shown: str) -> "Imported | Path":
        """Return the wanted run by its path or its number from 1; runs of other programs come first, then run folders.

        Args:
            wanted: The user's choice; empty: the only run.
            shown: The folder's name in messages.

        Raises:
            UsageError: Where there are several runs and none is wanted, or none has the wanted name.
        """
        choices: dict[str, Imported | Path] = {run.name: run for run in self.runs}
        choices |= {name: path for name, path in self.folders.items() if name not in choices}
        if not wanted and len(choices) == 1:
            return next(iter(choices.values()))
        if wanted in choices:
            return choices[wanted]
        if wanted.isdecimal() and 1 <= int(wanted) <= len(choices):
            return list(choices.values())[int(wanted) - 1]
        shorter = [name if len(name) <= MAX_SHOWN else f"...{name[3 - MAX_SHOWN :]}" for name in choices]
        listed = [
            f"{number}: {name} ({kind_and_steps(choices[key])})"
            for number, (name, key) in enumerate(zip(shorter, choices, strict=True), 1)
        ]
        more = f"; and {len(listed) - MAX_LISTED:,} more" if len(listed) > MAX_LISTED else ""
        what = f"has no run {shorten_name(wanted)!r}" if wanted else f"is no run itself, and {len(listed):,} lie below it"
        hint = f"Take one with --run 2, or name its path. There is {'; '.join(listed[:MAX_LISTED])}{more}."
        raise UsageError(f"{shown} {what}", hint=hint)


def kind_and_steps(run: "Imported | Path") -> str:
    """Return the format and the step range of a run in a few words."""
    if isinstance(run, Path):
        return RUN_FOLDER
    steps = run.table.steps
    return f"{run.source}, " + (f"steps {int(steps.min()):,} to {int(steps.max()):,}" if len(steps) else "no scalars")


class _Place(Struct, frozen=True):
    """A file or a folder that may be a log."""

    name: str
    source: Source
    importer: "Importer | None"


def find_logs(folder: Path, import_options: ImportOptions, detect: Detect) -> FoundLogs:
    """Find and read all logs below a folder.

    Args:
        folder: Where to look.
        import_options: The logs' own names that the user mapped, by catalogue name.
        detect: Returns the importer that recognizes a source.
    """
    logs = FoundLogs()
    size = read = 0
    for place in _places(folder, detect, logs.notes):
        if place.importer is None:
            logs.folders[place.name] = place.source.path
            continue
        size += 0 if place.source.is_folder else place.source.path.stat().st_size
        if read == MAX_READ or size > MAX_BYTES:
            logs.notes.append(f"only the first {read:,} logs below the folder were read: name a folder inside it")
            break
        read += 1
        _read(logs, place, import_options)
    return logs


def holds_logs(folder: Path, detect: Detect) -> bool:
    """Tell whether anything below a folder looks like a log or a run folder; nothing is read completely."""
    return next(_places(folder, detect, []), None) is not None


def holds_others(source: Source, importer: Importer, detect: Detect) -> bool:
    """Tell whether a folder holds logs that an importer does not recognize, beside the runs that it does."""
    if not _is_parent(source, importer):
        return False
    return any(place.importer is not importer for place in _places(source.path, detect, []))


def note_on_others(source: Source, importer: Importer, detect: Detect) -> list[str]:
    """Return a note on logs of other formats in a folder that an importer searched only for its own files; or none.

    Tables and texts without a mark of their own are not named, because they may be anything.
    """
    if not source.is_folder or not getattr(importer, "SEARCHES", False):
        return []
    places = _places(source.path, detect, [])
    foreign = (place for place in places if place.importer is not importer and not getattr(place.importer, "GENERIC", False))
    others = [f"{place.name} ({place.importer.NAME if place.importer else RUN_FOLDER})" for place in islice(foreign, MAX_LISTED)]
    return [f"{BESIDE} {list_names(others, max_names=3)}: name one to read it"] if others else []


def _is_parent(source: Source, importer: Importer) -> bool:
    """Tell whether an importer recognizes a folder only for the runs in its direct subfolders."""
    return getattr(importer, "SIDE_BY_SIDE", False) and any(map(importer.detects, source.folders()))


def _read(logs: FoundLogs, place: _Place, import_options: ImportOptions) -> None:
    importer = place.importer
    if importer is None:
        return
    try:
        runs = read_with(importer, place.source, import_options)
    except CkauditError as error:
        if not importer.GENERIC:
            logs.errors.append(error)
            logs.notes.append(f"{shown_name(place.name)} could not be read: {error}")
        return
    for run in runs:
        if importer.GENERIC and not _OF_A_TRAINING & {*run.table.names}:
            continue
        name = f"{place.name}: {run.name}" if len(runs) > 1 else place.name
        logs.runs.append(replace(run, name=writable(name), notes=(f"found in {shown_name(place.name)}", *run.notes)))


def runs_below(top: Path, detect: Detect, notes: list[str], *, max_entries: int) -> Iterator[Path]:
    """Yield the paths of the logs and run folders below a folder; nothing is read completely."""
    return (place.source.path for place in _places(top, detect, notes, max_entries=max_entries))


def _places(top: Path, detect: Detect, notes: list[str], *, max_entries: int | None = None) -> Iterator[_Place]:
    """Yield possible logs with their paths; the contents of a folder that is a log are part of it."""
    max_entries = MAX_ENTRIES if max_entries is None else max_entries
    root, seen, left_out, shut = Source(top), 0, list[str](), list[str]()
    for path, inner, names in os.walk(top, onerror=lambda error: shut.append(shown_name(str(error.filename)))):
        relative = Path(path).relative_to(top)
        seen += len(inner) + len(names)
        if seen > max_entries:
            notes.append(f"only {max_entries:,} files and folders were looked at: name a folder inside it")
            return
        if relative.parts and (place := _folder(root, relative.as_posix(), detect)) is not None:
            inner.clear()
            yield place
            continue
        deeper = sorted(name for name in inner if not name.startswith(".") and name not in _OF_PROGRAMS)
        inner[:] = deeper if len(relative.parts) < MAX_DEPTH else []
        left_out += [] if inner else deeper
        yield from _files(root, relative, names, detect)
    if shut:
        notes.append(f"folders that may not be listed were not looked at, as {list_names(shut, max_names=1)}")
    if left_out:
        notes.append(f"folders more than {MAX_DEPTH} deep were not looked at, as {list_names(left_out, max_names=1)}")


def _folder(root: Source, name: str, detect: Detect) -> _Place | None:
    source = root.inside(name)
    if source is None:
        return None
    try:
        if holds_run(source.path):
            return _Place(name, source, None)
        importer = detect(source)
        if importer is None and (source.path / MANIFEST_NAME).is_file():
            return _Place(name, source, None)
    except (CkauditError, OSError):
        return None
    return None if importer is None or _is_parent(source, importer) else _Place(name, source, importer)


def _files(root: Source, folder: Path, names: list[str], detect: Detect) -> Iterator[_Place]:
    """Yield the files that an importer recognizes: one per name without its ending, and no archive beside its unpacked folder."""
    stems = set()
    for name in sorted(names, key=lambda name: (_rank(name), name)):
        stem = name.partition(".")[0]
        if _rank(name) == len(_ENDINGS) or stem in stems or CHECKPOINT_NAME.match(name) or SCALARS_PATTERN.match(name):
            continue
        relative = (folder / name).as_posix()
        source = root.inside(relative)
        if source is None or source.is_folder or _is_unpacked(root, relative, detect):
            continue
        try:
            importer = detect(source) if source.first(1) else None
        except UnreadableError:
            continue
        if importer is not None:
            stems.add(stem)
            yield _Place(relative, source, importer)


def _is_unpacked(root: Source, name: str, detect: Detect) -> bool:
    """Tell whether an archive has been unpacked: a folder with its name lies beside it and is a log."""
    folder = root.inside(name.removesuffix(_ARCHIVE)) if name.endswith(_ARCHIVE) else None
    return folder is not None and folder.is_folder and detect(folder) is not None


def could_be_log(name: str) -> bool:
    """Tell from a file name alone whether the file may be a log or a part of one, such as TensorBoard's and W&B's."""
    return _rank(name) < len(_ENDINGS) or any(part in name for part in _PARTS_OF_NAMES)


def _rank(name: str) -> int:
    plain = name.lower()
    for packed in _PACKED:
        plain = plain.removesuffix(packed)
    return next((rank for rank, ending in enumerate(_ENDINGS) if plain.endswith(ending)), len(_ENDINGS))
