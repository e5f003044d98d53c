"""Which file a user means by `run@500`, and what it says, as plain objects: nothing heavy is loaded for it."""

from pathlib import Path
from typing import Any

import msgspec

from ckaudit.contract.decode import decode
from ckaudit.contract.files import BrokenFile, read_bytes
from ckaudit.contract.folder import CheckpointFile, list_folder, shown_name
from ckaudit.errors import UnreadableError, UsageError

Document = dict[str, Any]
VERSION = "ck.analysis.v1"  # the contract's own is among types that take as long to load as two files to compare


def named_document(subject: str) -> CheckpointFile:
    """Return the checkpoint file that `a.json` or `run@500` stands for.

    Raises:
        UnreadableError: Where there is none.
        UsageError: Where what follows the last @ is no step.
    """
    path = Path(subject)
    if path.is_file():
        return CheckpointFile(path, shown_name(subject), None, None, None)
    folder, at, step = subject.rpartition("@")
    if not at or not Path(folder).is_dir():
        raise UnreadableError(f"{subject} is no checkpoint file", hint="Name a file, or a step of a run as run@500.")
    if not step.isdecimal():
        raise UsageError(f"{step!r} is no step", hint="Name a step of a run as run@500.")
    found = checkpoint_at(Path(folder), int(step), before=True)
    if found is None:
        raise UnreadableError(f"{folder} has no checkpoint at or before step {step}", hint="ckaudit metrics lists its steps.")
    return found


def checkpoint_at(folder: Path, step: int, *, before: bool = False) -> CheckpointFile | None:
    """Return a run's merged checkpoint file of `step`, None where it has none.

    Args:
        folder: The run folder.
        step: The step in the file's name.
        before: Whether the latest before it does as well.
    """
    known = {each: file for each, file in checkpoints_of(folder).items() if each == step or (before and each <= step)}
    return known[max(known)] if known else None


def checkpoints_of(folder: Path) -> dict[int, CheckpointFile]:
    """Return a run's merged checkpoint files by step."""
    files = list_folder(folder).checkpoints if folder.is_dir() else ()
    return {file.step: file for file in files if file.rank is None and file.step is not None}


def read_document(path: Path, shown: str) -> Document:
    """Return what a checkpoint file says.

    Raises:
        UnreadableError: Where it cannot be read, is no JSON object, or follows another contract.
    """
    return decoded(document_bytes(path, shown), shown)


def document_bytes(path: Path, shown: str) -> bytes:
    """Return the uncompressed bytes of a checkpoint file, or raise `UnreadableError`."""
    try:
        return read_bytes(path, shown)
    except BrokenFile as broken:
        raise UnreadableError(f"{shown} {broken}", hint="ckaudit validate says what is wrong with it.") from None


def decoded(data: bytes, shown: str) -> Document:
    """Return what the bytes of a checkpoint file say, or raise `UnreadableError`."""
    try:
        document = decode(data, msgspec.json.Decoder()).document
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise UnreadableError(f"{shown} is no JSON object", hint="ckaudit validate says what is wrong with it.")
    if document.get("schema_version") != VERSION or not isinstance(document.get("step"), int):
        raise UnreadableError(f"{shown} is no checkpoint of {VERSION}", hint="ckaudit validate says what it is.")
    return document
