"""The checkpoint files of a run, and what one says, as plain objects: nothing heavy is loaded for it."""

from pathlib import Path
from typing import Any

import msgspec

from ckaudit.contract.io.codec import decode
from ckaudit.contract.io.files import BrokenFile, read_bytes
from ckaudit.contract.io.folder import CheckpointFile, list_folder
from ckaudit.errors import UnreadableError

Document = dict[str, Any]
VERSION = "ck.analysis.v1"  # the contract's own is among types that take as long to load as two files to compare


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
