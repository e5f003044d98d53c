"""Writer of an imported run as a run folder, complete or not at all."""

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from os import getpid
from pathlib import Path

import msgspec
import numpy as np
from msgspec.structs import replace

from ckaudit.contract.io.codec import encode
from ckaudit.contract.io.files import MANIFEST_NAME, SCALARS_NAME, checkpoint_file_name
from ckaudit.contract.io.folder import list_folder
from ckaudit.contract.schema.checkpoint import VERSION as CHECKPOINT
from ckaudit.contract.schema.numbers import encode_float
from ckaudit.contract.schema.scalars import VERSION as LINES
from ckaudit.errors import UsageError
from ckaudit.importers.importer import Imported, Row

_UNSAFE = re.compile(r"[^\w.+=-]+")
MAX_NAME = 80


def names_of_folders(runs: Sequence[Imported]) -> list[str]:
    """Return a unique folder name for each of several runs: the run's name without unsafe characters."""
    names: list[str] = []
    for number, run in enumerate(runs, 1):
        name = _UNSAFE.sub("_", run.name)[:MAX_NAME].strip("._ ") or f"run-{number}"
        while name.casefold() in map(str.casefold, names):
            name += f"-{number}"
        names.append(name)
    return names


def write_run(run: Imported, folder: Path, *, force: bool = False) -> None:
    """Write a run as `run.json`, `scalars.jsonl` and checkpoints.

    Args:
        run: The run.
        folder: Where to write it; created if it is missing.
        force: Whether to replace a run in the folder; other files in the folder stay.

    Raises:
        UsageError: Where the folder holds a run that may not be replaced, or is not a folder.
        OSError: Where the run could not be written; no partial run is left behind.
    """
    old = run_files(folder)
    if old and not force:
        raise UsageError(f"{folder} holds a run already: {old[0].name}", hint="name a new folder, or replace it with --force")
    target = folder.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{getpid()}.partial")
    try:
        partial.mkdir()
        for name, data in _files(run):
            (partial / name).write_bytes(data)
            with suppress(FileNotFoundError):
                (partial / name).chmod((target / name).stat().st_mode & 0o777)
        for path in old:
            path.unlink()
        if target.exists():
            for path in partial.iterdir():
                path.replace(target / path.name)
        else:
            partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def run_files(folder: Path) -> list[Path]:
    """Return the files of the run in a folder; writing another run there replaces them.

    Raises:
        UsageError: Where the path is not a folder.
    """
    if not folder.exists():
        return []
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder", hint="name another with -o")
    listing = list_folder(folder)
    files = [*listing.scalars, *(file.path for file in (*listing.checkpoints, *listing.history))]
    return [folder / MANIFEST_NAME, *files] if (folder / MANIFEST_NAME).exists() else files


def _files(run: Imported) -> Iterator[tuple[str, bytes]]:
    manifest = replace(run.manifest, notes=list(run.notes)) if run.notes else run.manifest
    yield MANIFEST_NAME, encode(manifest)
    if len(run.table.steps):
        yield SCALARS_NAME, b"".join(_lines(run))
    for document in run.documents:
        yield checkpoint_file_name(document["step"]), encode({"schema_version": CHECKPOINT, **document})


def _lines(run: Imported) -> Iterator[bytes]:
    encoder = msgspec.json.Encoder()
    known = run.table.recorded
    plain = bool(np.isfinite(run.table.values if known is None else run.table.values[known]).all())
    for number, row in enumerate(run.rows):
        line: Row = (
            row if plain else {name: encode_float(cell) if isinstance(cell, float) else cell for name, cell in row.items()}
        )
        yield encoder.encode(line if number else {"schema_version": LINES, **line}) + b"\n"
