"""A run folder without anything that a real run would not have: no telling name, no label, no fact that was only told."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

from ckaudit.contract.io.codec import encode, pack
from ckaudit.contract.io.files import CHECKPOINT_NAME, SCALARS_NAME, BrokenFile, read_bytes

# What `Recorder` finds out by itself, whatever the model.
OWN = {
    "schema_version",
    "source",
    "parameters",
    "commit",
    "lock_hash",
    "environment",
    "cadence",
    "triggers",
    "world_size",
    "tensors",
    "sessions",
    "model",
    "dropout",
    "dropout_module",
}
# What it has to be told, and what every careful user would tell it: nothing of it is chosen by a fault alone.
TOLD = {"vocabulary", "sequence_length", "clip_norm", "warmup_steps", "planned_steps", "planned_learning_rate", "loss_ema_beta"}
HINTS = ("model_scale_hint",)  # words of the user that are repeated in each checkpoint


def anonymous(
    folder: Path, target: Path, *, facts: set[str], rng: random.Random, names: dict[str, str] | None = None
) -> dict[str, str]:
    """Write a run to another folder with other names of tensors, another seed and only some facts.

    Tensors keep their order, and in the tensor table their shape, module and kind. A file that cannot be read is copied.

    Args:
        folder: The run folder.
        target: Where it goes; made.
        facts: Members of run.json that stay.
        rng: Draws the names.
        names: New names by old ones; None: one without any structure for each tensor.

    Returns:
        The new names by the old ones.
    """
    manifest = json.loads((folder / "run.json").read_bytes())
    if names is None:
        names = {name: f"t{rng.randrange(16**8):08x}" for name in manifest.get("tensors", {})}
    target.mkdir()
    kept = {name: value for name, value in manifest.items() if name in facts}
    if "seed" in facts and "seed" in manifest:
        kept["seed"] = rng.randrange(10_000)
    (target / "run.json").write_bytes(encode(renamed(kept, names)))
    for file in folder.iterdir():
        if CHECKPOINT_NAME.match(file.name):
            _checkpoint(file, target / file.name, names)
        elif SCALARS_NAME.match(file.name):
            (target / file.name).write_bytes(b"".join(_line(line, names) for line in file.read_bytes().splitlines(keepends=True)))
        elif file.is_file() and file.name != "run.json":
            shutil.copy(file, target)
    return names


def renamed(value: Any, names: dict[str, str]) -> Any:
    """Return a document with every key and text that is a tensor's name replaced, also behind the slash of a label."""
    if isinstance(value, dict):
        return {_renamed_text(key, names): renamed(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [renamed(item, names) for item in value]
    return _renamed_text(value, names) if isinstance(value, str) else value


def _renamed_text(text: str, names: dict[str, str]) -> str:
    name, slash, label = text.partition("/")
    return names.get(text) or (f"{name}/{names[label]}" if slash and label in names else text)


def _checkpoint(file: Path, target: Path, names: dict[str, str]) -> None:
    try:
        document = json.loads(read_bytes(file, file.name))
    except (BrokenFile, ValueError):  # the fault may be that it cannot be read
        shutil.copy(file, target)
        return
    for hint in HINTS:
        document.pop(hint, None)
    text = json.dumps(renamed(document, names)).encode()  # a bare NaN stays one
    target.write_bytes(pack(text, file.name[file.name.index(".json") :]))


def _line(line: bytes, names: dict[str, str]) -> bytes:
    try:
        row = json.loads(line)
    except ValueError:
        return line
    return json.dumps(renamed(row, names)).encode() + line[len(line.rstrip(b"\r\n")) :]
