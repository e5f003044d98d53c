"""The log that a run without our recorder would have: loss, validation loss, learning rate, gradient norm and times."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ckaudit.contract.io.files import SCALARS_NAME, read_bytes

NAMES = {
    "train_loss_raw": "loss",
    "val_loss": "val_loss",
    "learning_rate": "lr",
    "grad_global_norm": "grad_norm",
    "step_time": "step_time",
    "tokens_per_sec": "tokens_per_sec",
    "time": "timestamp",
}  # the names that all readers of logs know
STALL = "dataloader_stall_frac"
WORDS = ("NaN", "Infinity", "-Infinity")
WAITING = ("loader_time", "data_time")  # two readers, two names


def write_log(folder: Path, path: Path) -> None:
    """Write a line of JSON for each line of the run's scalars, numbers that are not finite as Python writes them."""
    with path.open("w", encoding="utf-8") as stream:
        for row in _rows(folder):
            stall = row.pop(STALL, None)
            waits = dict.fromkeys(WAITING, stall * row["step_time"]) if stall is not None and "step_time" in row else {}
            stream.write(json.dumps(row | waits) + "\n")


def write_table(folder: Path, path: Path) -> None:
    """Write the same log as a table, which our own auditor reads as it does anybody's; the loader's wait is a share there."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        table = csv.DictWriter(stream, ["step", *NAMES.values(), STALL], lineterminator="\n")
        table.writeheader()
        table.writerows(_rows(folder))


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield what each line says by the names of a log; a torn line is skipped, as a reader of logs would."""
    for file in sorted(file for file in folder.iterdir() if SCALARS_NAME.match(file.name)):
        for line in read_bytes(file, file.name).decode(errors="replace").splitlines():
            try:
                told = json.loads(line)
            except ValueError:
                continue
            row = {"step": told["step"]} | {new: _number(told[old]) for old, new in NAMES.items() if told.get(old) is not None}
            yield row | ({STALL: told[STALL]} if isinstance(told.get(STALL), float) else {})


def _number(value: Any) -> Any:
    return float(value) if value in WORDS else value
