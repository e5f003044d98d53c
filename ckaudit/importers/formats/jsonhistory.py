"""A JSON document with a history inside: `{"config": {...}, "history": [{"epoch": 1, "train_loss": 2.3}, ...]}`.

The history is a list of entries, a dictionary of entries by number, or a dictionary of lists, one of which has the name of a
loss; the longest of several is taken. It is read in the same way as JSON lines or lists of numbers.

Lists without the name of a loss are read if the file is named after losses and the lists after their data, such as `train` and
`val`. In a file named as a history or after losses, other lists are refused with the option that selects one.
"""

import json
from collections import deque
from collections.abc import Iterator, Mapping
from shlex import quote
from typing import Any

from ckaudit.contract.schema.score_names import EPISODE_RETURN
from ckaudit.errors import UnreadableError
from ckaudit.importers.formats import jsonl, keras
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.kinds_of_loss import have_adversarial_losses, train_and_val_columns
from ckaudit.importers.names import catalogue_name, list_names, writable
from ckaudit.importers.tables.loss_file_names import loss_named_by_file, words_in_file_name

NAME = "history in a JSON document"
GENERIC = True
MAX_BYTES = 2**26
"""A larger document is not a summary of a training, and parsing it takes seconds."""

MAX_DEPTH = 4
MIN_ENTRIES = 2
MIN_NUMBERS = 5
"""Minimum length of a list without a known name."""
MAX_OFFERED = 3
_LOSSES = ("train_loss_raw", "val_loss")


def detects(source: Source) -> bool:
    """Tell whether the document has a list named as a loss, or lists of numbers in a file that is named as a history."""
    if source.is_folder or not source.head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") or len(source.data) > MAX_BYTES:
        return False
    is_history = _is_named_a_history(source.path.name)
    if not is_history and not any(mark in source.data for mark in (b"oss", b"eward", b"eturn")):
        return False
    document = _document(source)
    return _history(document) is not None or (is_history and bool(_lists_of(document)))


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the history.

    Raises:
        UnreadableError: Where there is none, or none of its members has a known name.
        UsageError: Where `columns` names something that does not exist.
    """
    document = _document(source)
    history = _history(document)
    if history is None and (lists := _lists_of(document)):
        return keras.read(source.with_data(json.dumps(lists).encode()), columns or _named_by_file(lists, source))
    if history is None:
        raise UnreadableError(f"{source.shown} holds no history of a loss", hint="Name the format of the file by --format.")
    lines = source.with_data(json.dumps(history).encode())
    return jsonl.read(lines, columns) if isinstance(history, list) else keras.read(lines, columns)


def _is_named_a_history(name: str) -> bool:
    """Tell whether a file's name says that it holds a training history or losses."""
    return "history" in words_in_file_name(name) or loss_named_by_file(name) is not None


def _named_by_file(lists: Mapping[str, list[Any]], source: Source) -> dict[str, str]:
    """Return the lists that are losses by the file's name, by catalogue name: those named after their data, or the only list.

    Raises:
        UnreadableError: Where nothing says which list is a loss.
    """
    loss = loss_named_by_file(source.path.name)
    if loss is not None and (pair := train_and_val_columns(list(lists))):
        return dict(zip(("train_loss_raw", "val_loss"), pair, strict=True))
    if loss is not None and loss.column and len(lists) == 1:
        return {loss.catalogue_name: next(iter(lists))}
    options = " or ".join(f"--map {quote(f'loss={name}')}" for name in list(lists)[:MAX_OFFERED])
    raise UnreadableError(
        f"{source.shown} holds lists of numbers, but nothing says that one is a loss: {list_names(list(lists))}",
        hint=f"Take one for the training loss, as in {options}.",
    )


def _document(source: Source) -> Any:
    """Return the parsed document; None where it cannot be read, or is a document of ckaudit."""
    try:
        document = json.loads(source.document.decode("utf-8-sig", errors="replace"))
    except (ValueError, RecursionError, UnreadableError):
        return None
    if isinstance(document, dict) and str(document.get("schema_version", "")).startswith("ck."):  # a report or a checkpoint
        return None
    return document


def _history(document: Any) -> list[Any] | dict[str, Any] | None:
    """Return the longest history of a document, as entries or as lists; None where there is none."""
    return max(_histories(document), key=_length, default=None)


def _lists_of(document: Any) -> dict[str, list[Any]]:
    """Return the lists of numbers in the outermost object, by name."""
    members = document.items() if isinstance(document, dict) else ()
    return {writable(key): cells for key, cells in members if _are_numbers(cells) and len(cells) >= MIN_NUMBERS}


def _histories(document: Any) -> Iterator[list[Any] | dict[str, Any]]:
    """Yield possible histories, outermost first."""
    waiting = deque([(document, 0)])
    while waiting:
        value, depth = waiting.popleft()
        if isinstance(value, list):
            if sum(_is_entry(entry) for entry in value) >= MIN_ENTRIES:
                yield [entry for entry in value if isinstance(entry, dict)]
        elif isinstance(value, dict):
            if all(map(str.isdecimal, value)) and sum(map(_is_entry, value.values())) >= MIN_ENTRIES:
                yield [{"epoch": int(key)} | entry for key, entry in value.items() if isinstance(entry, dict)]
            lists = {writable(key): cells for key, cells in value.items() if _are_numbers(cells)}
            if any(map(_is_judged, lists)) or have_adversarial_losses(lists):
                yield lists
            waiting += [(inner, depth + 1) for inner in value.values() if depth < MAX_DEPTH]


def _is_judged(key: str) -> bool:
    """Tell whether a list is that of a loss or of the returns of episodes."""
    name = catalogue_name(key) or ""
    return name in _LOSSES or EPISODE_RETURN.search(name.partition("/")[2]) is not None


def _is_entry(value: Any) -> bool:
    return isinstance(value, dict) and any(
        isinstance(number, int | float) and catalogue_name(key) in _LOSSES for key, number in value.items()
    )


def _are_numbers(cells: Any) -> bool:
    return isinstance(cells, list) and len(cells) >= MIN_ENTRIES and all(isinstance(cell, int | float | None) for cell in cells)


def _length(history: list[Any] | dict[str, Any]) -> int:
    return len(history) if isinstance(history, list) else max(map(len, history.values()))
