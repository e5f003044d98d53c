"""The log that a run without our recorder would have: loss, validation loss, learning rate, gradient norm and times."""

import json
from pathlib import Path
from typing import Any

from ckaudit.contract.files import SCALARS_NAME, read_bytes

NAMES = {
    "train_loss_raw": "loss",
    "val_loss": "val_loss",
    "learning_rate": "lr",
    "grad_global_norm": "grad_norm",
    "step_time": "step_time",
    "tokens_per_sec": "tokens_per_sec",
    "time": "timestamp",
}  # the names that all readers of logs know
WORDS = ("NaN", "Infinity", "-Infinity")
WAITING = ("loader_time", "data_time")  # two readers, two names


def write_log(folder: Path, path: Path) -> None:
    """Write a line of JSON for each line of the run's scalars, numbers that are not finite as Python writes them."""
    with path.open("w", encoding="utf-8") as stream:
        for file in sorted(file for file in folder.iterdir() if SCALARS_NAME.match(file.name)):
            for line in read_bytes(file, file.name).decode(errors="replace").splitlines():
                if (row := _row(line)) is not None:
                    stream.write(json.dumps(row) + "\n")


def _row(line: str) -> dict[str, Any] | None:
    try:
        told = json.loads(line)
    except ValueError:
        return None  # a torn line, which a reader of logs would skip
    row = {"step": told["step"]} | {new: _number(told[old]) for old, new in NAMES.items() if told.get(old) is not None}
    if "step_time" in row and isinstance(told.get("dataloader_stall_frac"), float):
        row |= dict.fromkeys(WAITING, told["dataloader_stall_frac"] * row["step_time"])
    return row


def _number(value: Any) -> Any:
    return float(value) if value in WORDS else value
