"""Runs made by hand for the tests of validate: small, healthy, and changed in one place."""

import json
from pathlib import Path
from typing import Any

NAMES = ("embed", "blocks.0.w", "blocks.1.w")
STEPS = (0, 10, 20, 30, 40, 50)


def checkpoint(step: int, loss: float = 2.0, **changed: Any) -> dict[str, Any]:
    weights = {name: {"shape": [8, 8], "dtype": "float32", "mean": 0.0, "std": 0.1} for name in NAMES}
    document = {
        "schema_version": "ck.analysis.v1",
        "step": step,
        "loss": loss,
        "time": 1.7e9 + step,
        "session": 0,
        "scalars": {"train_loss_raw": loss, "grad_global_norm": 0.3**0.5},
        "weights": weights,
        "gradients": {name: {"norm": 0.1**0.5} for name in NAMES},
    }
    return document | changed


def name_of(step: int) -> str:
    return f"analysis_checkpoint_step_{step:08d}.json"


def write(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document))
    return path


def line(step: int, **changed: Any) -> dict[str, Any]:
    values = {"step": step, "time": 1.7e9 + step, "session": 0, "train_loss_raw": 2.0, "grad_global_norm": 0.3**0.5}
    return values | changed


def write_lines(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path


def manifest(**changed: Any) -> dict[str, Any]:
    table = {name: {"shape": [8, 8], "dtype": "float32", "trainable": True} for name in NAMES}
    sessions = [{"start": 1.7e9, "end": 1.8e9, "world_size": 1}]
    document = {"schema_version": "ck.run.v1", "parameters": 3 * 64, "tensors": table, "sessions": sessions}
    return document | {"cadence": [{"until": None, "every": 10}]} | changed


def healthy_run(root: Path, steps: tuple[int, ...] = STEPS) -> Path:
    """Write a run of six checkpoints, fifty lines and a manifest, against which nothing can be said."""
    root.mkdir(parents=True, exist_ok=True)
    for step in steps:
        write(root / name_of(step), checkpoint(step))
    write_lines(root / "scalars.jsonl", [line(step) for step in range(1, 51)])
    write(root / "run.json", manifest())
    return root
