"""First contact: runs that other programs logged. One module per format; each is asked whether it knows the file."""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import MappingProxyType
from typing import cast

from ckaudit.contract.files import MAX_BYTES, BrokenFile, read_bytes
from ckaudit.contract.folder import shown_name
from ckaudit.errors import UnreadableError
from ckaudit.importers.imported import Imported, Importer
from ckaudit.importers.table import HEAD_BYTES, UTF16_MARKS

__all__ = ["Imported", "import_source", "importers"]

MAX_IMPORT_BYTES = 4 * MAX_BYTES  # a million rows of 200 bytes, and a log of that size still fits in memory
NO_COLUMNS: Mapping[str, str] = MappingProxyType({})

_POINTER = b"version https://git-lfs"
_PAGE = (b"<!doctype html", b"<html")


@cache
def importers() -> tuple[Importer, ...]:
    """Return every importer of this package, those of formats without a mark of their own last."""
    modules = [import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__)]
    known = [cast("Importer", module) for module in modules if hasattr(module, "detects")]
    return tuple(sorted(known, key=lambda each: (each.GENERIC, each.NAME)))


def import_source(path: Path, *, columns: Mapping[str, str] = NO_COLUMNS) -> Imported:
    """Read the log of another program.

    Args:
        path: A file, packed or not, or a folder in which a trainer left its state.
        columns: The file's own column for a catalogue name or its short form, such as {"loss": "train/loss"}.

    Raises:
        UnreadableError: Where no importer knows the file, or the one that does finds it broken or empty.
        UsageError: Where `columns` names what is not there.
    """
    path = _state_in(path) if path.is_dir() else path
    shown = shown_name(path.name)
    try:
        data = read_bytes(path, shown, max_bytes=MAX_IMPORT_BYTES)
    except BrokenFile as broken:
        raise UnreadableError(f"{shown} {broken.finding.message}", hint=broken.finding.help or "") from None
    head = data[:HEAD_BYTES]
    _refuse_what_is_no_log(head, shown)
    for importer in importers():
        if importer.detects(path, head):
            return importer.read(path, data, columns)
    raise UnreadableError(
        f"{shown} is no log that is known: expected {_either(each.NAME for each in importers())}, found {_looks_like(head)}",
        hint="Write its series to a CSV file with a header line, or name a run folder.",
    )


def _state_in(folder: Path) -> Path:
    """Return the trainer state in a folder, else the one of its latest checkpoint."""
    states = [
        folder / "trainer_state.json",
        *sorted(folder.glob("checkpoint-*/trainer_state.json"), key=_checkpoint, reverse=True),
    ]
    found = next((state for state in states if state.is_file()), None)
    if found is None:
        raise UnreadableError(
            f"{shown_name(folder.name)} is a folder without trainer_state.json", hint="Name the log file itself."
        )
    return found


def _checkpoint(state: Path) -> tuple[int, str]:
    number = state.parent.name.removeprefix("checkpoint-")
    return (int(number) if number.isdecimal() else -1, number)


def _refuse_what_is_no_log(head: bytes, shown: str) -> None:
    if not head.strip():
        raise UnreadableError(f"{shown} is empty", hint="Look whether the job wrote anything yet.")
    if head.startswith(_POINTER):
        raise UnreadableError(f"{shown} is a Git LFS pointer, not the file it stands for", hint="Fetch it with: git lfs pull")
    if head.lstrip().lower().startswith(_PAGE):
        raise UnreadableError(
            f"{shown} is a web page, not a log", hint="Download the raw file; the server may have asked for a login."
        )
    if b"\0" in head and not head.startswith(UTF16_MARKS):
        raise UnreadableError(f"{shown} is binary, not text", hint="Export its series as CSV.")


def _either(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}"


def _looks_like(head: bytes) -> str:
    first = head.lstrip().splitlines()[0][:40].decode("utf-8", errors="replace")
    kind = "a JSON document without log_history" if first.startswith("{") else "text"
    return f"{kind} that starts {first!r}"
