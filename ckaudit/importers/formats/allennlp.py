"""AllenNLP's training folder: `metrics_epoch_0.json`, `metrics_epoch_1.json` and so on, one object per epoch.

An object holds the training and validation metrics of its epoch, and repeats the best metrics so far, which are ignored.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from ckaudit.errors import UnreadableError
from ckaudit.importers.formats import jsonl
from ckaudit.importers.importer import Imported, Source

NAME = "AllenNLP metrics"
GENERIC = False
MAX_EPOCHS = 20_000
_PART_OF_NAME = "metrics_epoch_"
_FILE = re.compile(r"metrics_epoch_(\d{1,6})\.json")
_REPEATED = "best_"


def detects(source: Source) -> bool:
    """Tell whether the folder holds files with such names."""
    return source.is_folder and any(
        _FILE.fullmatch(name) for name, _ in source.files(max_files=1, part_of_name=_PART_OF_NAME, deep=False)
    )


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the epochs in order.

    Raises:
        UnreadableError: Where no epoch has a value.
        UsageError: Where `columns` names something that does not exist.
    """
    epochs = dict(_epochs(source))
    lines = b"".join(msgspec.json.encode({"epoch": epoch, **epochs[epoch]}) + b"\n" for epoch in sorted(epochs))
    if not lines:
        raise UnreadableError(f"{source.shown} holds no epoch that can be read")
    runs = jsonl.read(source.with_data(lines), columns)
    for run in runs:
        run.manifest.source = NAME
    return [replace(run, source=NAME) for run in runs]


def _epochs(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the values of each epoch."""
    for name, file in source.files(max_files=MAX_EPOCHS, part_of_name=_PART_OF_NAME, deep=False):
        if (match := _FILE.fullmatch(name)) is None:
            continue
        try:
            values = msgspec.json.decode(file.document)
        except (msgspec.DecodeError, RecursionError):
            continue
        if isinstance(values, dict):
            yield int(match[1]), {key: value for key, value in values.items() if not key.startswith(_REPEATED) and key != "epoch"}
