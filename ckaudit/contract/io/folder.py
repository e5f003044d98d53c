"""The files of a run folder: checkpoints, scalars, manifest, history, and files of other programs."""

import os
from collections.abc import Iterable
from contextlib import suppress
from errno import EACCES
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from msgspec import Struct, field

from ckaudit.contract.io.files import CHECKPOINT_NAME, MANIFEST_NAME, SCALARS_PATTERN
from ckaudit.errors import UnreadableError
from ckaudit.remote.arrivals import names_to_come


class CheckpointFile(Struct, frozen=True):
    """One checkpoint file, described by its name alone.

    Attributes:
        path: Its path.
        shown: Its name in findings, relative to the user's argument.
        step: The step in its name, None if there is none.
        session: The session of a replaced checkpoint; None if it belongs to the run.
        rank: The rank of a per-rank file; None for the merged file.
    """

    path: Path
    shown: str
    step: int | None
    session: int | None
    rank: int | None


class RunFiles(Struct, frozen=True):
    """The files of one run, each list in the order of names.

    Attributes:
        root: The folder; None if the user named files.
        checkpoints: Checkpoints of the run itself, including per-rank files.
        history: Checkpoints that a resume replaced.
        scalars: Scalar logs.
        manifest: `run.json`, if it exists.
    """

    root: Path | None
    checkpoints: list[CheckpointFile] = field(default_factory=list)
    history: list[CheckpointFile] = field(default_factory=list)
    scalars: list[Path] = field(default_factory=list)
    manifest: Path | None = None

    def is_empty(self) -> bool:
        """Tell whether there is nothing to audit."""
        return not (self.checkpoints or self.scalars)


def list_folder(root: Path, *, prefix: str = "") -> RunFiles:
    """List the run in `root`; other files are ignored.

    Args:
        root: The folder.
        prefix: Prefix of each file's name in findings.

    Raises:
        UnreadableError: If the folder cannot be listed.
    """
    names = sorted(_names(root))
    folder = RunFiles(root, manifest=root / MANIFEST_NAME if MANIFEST_NAME in names else None)
    for name in names:
        if name.startswith("analysis_checkpoint_") and (checkpoint := named_checkpoint(root / name, shown_name(prefix + name))):
            (folder.checkpoints if checkpoint.session is None else folder.history).append(checkpoint)
        elif SCALARS_PATTERN.match(name):
            folder.scalars.append(root / name)
    return folder


def holds_run(root: Path) -> bool:
    """Tell whether a folder holds a checkpoint of the run itself or a scalar log.

    Raises:
        UnreadableError: If the folder cannot be listed.
    """
    names = _names(root)
    if any(SCALARS_PATTERN.match(name) for name in names):
        return True
    return any((match := CHECKPOINT_NAME.match(name)) is not None and match["session"] is None for name in names)


def is_own_name(name: str) -> bool:
    """Tell whether a file name is that of a checkpoint or a scalar log of the contract."""
    return bool(CHECKPOINT_NAME.match(name) or SCALARS_PATTERN.match(name))


def refuse_special(path: Path) -> None:
    """Refuse a pipe, a socket or a device without opening it: it may never end, and reading takes data from other readers.

    Raises:
        UnreadableError: If the path exists and is neither a folder nor a file.
    """
    with suppress(OSError, ValueError):
        mode = path.stat().st_mode
        if not S_ISDIR(mode) and not S_ISREG(mode):
            hint = "Name a folder or a file: what comes through a pipe is first written to one."
            raise UnreadableError(f"{shown_name(str(path))} is neither a folder nor a file", hint=hint)


def first_bytes(path: Path, count: int) -> bytes:
    """Return the first bytes of a file, which hold a contract file's version; nothing for a pipe or a device."""
    if not path.is_file():
        return b""
    with path.open("rb") as stream:
        return stream.read(count)


def list_files(paths: Iterable[Path], *, prefix: str | None = None) -> RunFiles:
    """List files that the user named; all except scalar logs and manifests count as checkpoints.

    Args:
        paths: The files.
        prefix: Prefix of their bare names in findings; None: they are shown as the user named them.
    """
    folder = RunFiles(None)
    manifest = None
    for path in paths:
        if SCALARS_PATTERN.match(path.name):
            folder.scalars.append(path)
        elif path.name == MANIFEST_NAME:
            manifest = path
        else:
            shown = shown_name(str(path) if prefix is None else prefix + path.name)
            folder.checkpoints.append(named_checkpoint(path, shown) or CheckpointFile(path, shown, None, None, None))
    return RunFiles(None, folder.checkpoints, [], folder.scalars, manifest)


def _names(root: Path) -> list[str]:
    shown = shown_name(str(root))
    try:
        names = [*{entry.name for entry in root.iterdir()}.union(names_to_come(root))]
    except OSError as error:
        raise UnreadableError(
            f"cannot list {shown}: {error.strerror or error}", hint="Name a run folder or a checkpoint file."
        ) from None
    if names:
        refuse_shut(root)
    return names


def refuse_shut(folder: Path) -> None:
    """Refuse a folder that can be listed but not entered: all its files would seem to be missing.

    Raises:
        UnreadableError: If the folder cannot be entered.
    """
    if not os.access(folder, os.X_OK):
        hint = "Look at its rights: a folder must be entered (chmod u+x)."
        raise UnreadableError(f"cannot enter {shown_name(str(folder))}/: {os.strerror(EACCES)}", hint=hint)


def shown_name(name: str) -> str:
    r"""Return a file name as valid UTF-8 text: a byte that does not decode is shown as its number.

    >>> print(shown_name(os.fsdecode(b"a\xff.json")))
    a\xff.json
    """
    return os.fsencode(name).decode(errors="backslashreplace")


def named_checkpoint(path: Path, shown: str) -> CheckpointFile | None:
    """Return step, session and rank from a file name.

    >>> named_checkpoint(Path("analysis_checkpoint_step_00000500.session001.json.gz"), "x").session
    1
    """
    match = CHECKPOINT_NAME.match(path.name)
    if match is None:
        return None
    numbers = {key: None if match[key] is None else int(match[key]) for key in ("step", "session", "rank")}
    return CheckpointFile(path, shown, **numbers)
