"""A JSON document that holds a history somewhere inside: `{"config": {...}, "history": [{"epoch": 1, "train_loss": 2.3}, ...]}`.

The history is a list of entries, a dictionary of entries by their numbers, or a dictionary of lists, one of which has the name of
a loss; of several the longest counts. It is read as JSON lines or as lists of numbers are.
"""

import json
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from ckaudit.errors import UnreadableError
from ckaudit.importers.formats import jsonl, keras
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import catalogue_name, writable

NAME = "history in a JSON document"
GENERIC = True
MAX_BYTES = 2**26
"""A document that is larger is no summary of a training, and parsing it to look takes seconds."""

MAX_DEPTH = 4
MIN_ENTRIES = 2
_LOSSES = ("train_loss_raw", "val_loss")


def detects(source: Source) -> bool:
    """Tell by a document in which a list of entries, or of numbers, has the name of a loss."""
    if source.is_folder or not source.head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") or len(source.data) > MAX_BYTES:
        return False
    return b"oss" in source.data and _history(source) is not None


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the history.

    Raises:
        UnreadableError: Where there is none, or none of its members has a known name.
        UsageError: Where `columns` names what is not there.
    """
    history = _history(source)
    if history is None:
        raise UnreadableError(f"{source.shown} holds no history of a loss", hint="Name the format of the file by --format.")
    lines = source.with_data(json.dumps(history).encode())
    return jsonl.read(lines, columns) if isinstance(history, list) else keras.read(lines, columns)


def _history(source: Source) -> list[Any] | dict[str, Any] | None:
    """Return the longest history of a document, in the form of entries or of lists; None where there is none."""
    try:
        document = json.loads(source.document.decode("utf-8-sig", errors="replace"))
    except (ValueError, RecursionError, UnreadableError):
        return None
    if isinstance(document, dict) and str(document.get("schema_version", "")).startswith("ck."):  # a report, or a checkpoint
        return None
    return max(_histories(document), key=_length, default=None)


def _histories(document: Any) -> Iterator[list[Any] | dict[str, Any]]:
    """Yield what may be a history, those further outside first."""
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
            if any(catalogue_name(key) in _LOSSES for key in lists):
                yield lists
            waiting += [(inner, depth + 1) for inner in value.values() if depth < MAX_DEPTH]


def _is_entry(value: Any) -> bool:
    return isinstance(value, dict) and any(
        isinstance(number, int | float) and catalogue_name(key) in _LOSSES for key, number in value.items()
    )


def _are_numbers(cells: Any) -> bool:
    return isinstance(cells, list) and len(cells) >= MIN_ENTRIES and all(isinstance(cell, int | float | None) for cell in cells)


def _length(history: list[Any] | dict[str, Any]) -> int:
    return len(history) if isinstance(history, list) else max(map(len, history.values()))
