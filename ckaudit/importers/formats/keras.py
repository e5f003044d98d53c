"""Keras' `History.history` written as JSON: a list per metric, with one value per epoch.

Epochs are the axis: value N is the end of epoch N. `loss` is the mean over the epoch. Where the whole History was written,
`params` gives the updates per epoch, and steps are updates. A data frame written as JSON, with its index as keys, has the same
form; if it has a list of steps, that is the axis. The CSV file of Keras' CSVLogger is read as a table.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from ckaudit.contract.io.codec import decode
from ckaudit.contract.schema.manifest import StepUnit
from ckaudit.errors import UnreadableError
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import list_names
from ckaudit.importers.notes_on_names import hint_on_unknown_names
from ckaudit.importers.tables.curves import Curves, imported_run
from ckaudit.importers.tables.field_map import SCALARS_ONLY, Mapped, Names, map_members, name_of
from ckaudit.importers.tables.jsonrows import JsonRows
from ckaudit.importers.tables.numbers import numbers, steps_from

NAME = "Keras history JSON"
GENERIC = False

_LIST = re.compile(rb'"([^"\\]{1,80})"\s*:\s*(?:\[\s*(?:-?\d|NaN|null|"|\])|\{\s*"0"\s*:)')
_WHOLE_HISTORY = re.compile(rb'"history"\s*:\s*\{')
_NAMES: Names = {"epoch": Mapped("")}
_DECODER = msgspec.json.Decoder(dict[str, Any])


def detects(source: Source) -> bool:
    """Tell whether the document's first member is a list of numbers, and a member has a known name."""
    head = source.head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not head.startswith(b"{"):
        return False
    start = _WHOLE_HISTORY.search(head) if b'"params"' in head else None
    body = head[start.end() if start else 1 :]
    first = _LIST.match(body.lstrip())
    names = [match[1].decode(errors="replace") for match in _LIST.finditer(head)]
    return first is not None and any(name_of(name, _NAMES) not in ("", "step", "time") for name in names)


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the history.

    Raises:
        UnreadableError: Where the file is truncated, or none of its lists has a known name or a value.
        UsageError: Where `columns` names something that does not exist.
    """
    document = _document(source)
    history = document.get("history")
    lists = {
        key: cells for key, value in (history if isinstance(history, dict) else document).items() if (cells := _cells(value))
    }
    longest = max(map(len, lists.values()), default=0)
    padded = {key: _over_epochs(cells, longest) for key, cells in lists.items()}
    rows = JsonRows(tuple(padded), {key: numbers(cells) for key, cells in padded.items()}, {}, range(1, longest + 1), [])
    mapped = map_members(rows, columns, _NAMES)
    series = {name: values for name, values in mapped.series.items() if name not in ("step", "time")}
    if not series:
        raise UnreadableError(
            f"{source.shown} holds lists of numbers, but none has a name that is known: {list_names(list(lists))}",
            hint=hint_on_unknown_names(list(lists), "MEMBER"),
        )
    updates = _param(document, "steps", below=2**40)
    notes = [*mapped.notes, *_notes_on_shorter({key: len(cells) for key, cells in lists.items()}, longest)]
    if "step" in mapped.series:
        steps = steps_from(mapped.series["step"])
    else:
        steps = np.arange(1, longest + 1) * (updates or 1)
        notes.append(_axis(updates))
    unit: StepUnit | UnsetType = UNSET if updates or "step" in mapped.series else "epoch"
    curves = Curves(steps, series, notes, names=[*padded], step_unit=unit)
    imported = imported_run(curves, source.shown, NAME, size=f"{longest:,} epochs", last=SCALARS_ONLY)
    if epochs := _param(document, "epochs", below=2**20):
        imported.manifest.planned_steps = epochs * (updates or 1)
    return [imported]


def _stride(count: int, longest: int) -> int:
    """Return the number of epochs between the values of a shorter list; 1 where none fits.

    >>> _stride(10, 900), _stride(11, 900), _stride(98, 100)
    (90, 90, 1)
    """
    every = [longest // values for values in (count, count - 1) if values > 1 and longest % values == 0]
    return next((stride for stride in every if stride > 1), 1)


def _over_epochs(cells: list[Any], longest: int) -> list[Any]:
    """Return the cells of a list at their epochs, shape (longest,), with None at other epochs.

    Where the list is shorter by an integer factor, its values are at the ends of as many epochs; one more value is at the first.
    """
    stride = _stride(len(cells), longest) if cells else 1
    if stride == 1:
        return [*cells, *[None] * (longest - len(cells))]
    placed: list[Any] = [None] * longest
    placed[stride - 1 :: stride] = cells[-(longest // stride) :]
    if len(cells) * stride > longest:
        placed[0] = cells[0]
    return placed


def _notes_on_shorter(lengths: Mapping[str, int], longest: int) -> Iterator[str]:
    """Yield notes on lists that are shorter than the longest, and on the epochs that their values were assigned to."""
    strides = {key: _stride(count, longest) for key, count in lengths.items() if 0 < count < longest}
    if shorter := [key for key, stride in strides.items() if stride == 1]:
        yield f"shorter than others, taken from the first epoch on: {list_names(shorter)}"
    for every in sorted({*strides.values()} - {1}):
        yield f"taken as values of every {every:,} epochs: {list_names([key for key in strides if strides[key] == every])}"


def _param(document: Mapping[str, Any], name: str, *, below: int) -> int:
    """Return an integer from the training's parameters, 0 where it is missing or out of range."""
    params = document.get("params")
    value = params.get(name) if isinstance(params, dict) else None
    return value if isinstance(value, int) and 0 < value < below else 0


def _axis(updates: int) -> str:
    if updates:
        return f"epochs are the axis, of {updates:,} updates each as its params say: epoch N is step N x {updates:,}"
    return "epochs are the axis: step N here is the end of epoch N; how many updates an epoch took is not recorded"


def _document(source: Source) -> dict[str, Any]:
    try:
        return decode(source.document, _DECODER).document
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableError(
            f"{source.shown} starts as lists of numbers in JSON, and cannot be read to its end: {error}", hint="Fetch it again."
        ) from None


def _cells(value: Any) -> list[Any]:
    """Return the cells of a column: a list, or a dictionary by index as a data frame writes it."""
    if isinstance(value, dict) and all(key.isdecimal() for key in value):
        return [value[key] for key in sorted(value, key=int)]
    return value if isinstance(value, list) else []
