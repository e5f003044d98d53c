"""The recorded pairs, and copies of them with one thing changed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zstandard

PAIRS = Path(__file__).parents[2] / "fixtures" / "pairs"
CHECKPOINT = "analysis_checkpoint_step_{:08d}.json.zst"


def copied(name: str, folder: Path) -> Path:
    """Copy a recorded run."""
    return Path(shutil.copytree(PAIRS / name, folder / name))


def document(run: Path, step: int) -> dict[str, Any]:
    """Return a checkpoint as Python's own parser reads it."""
    with (run / CHECKPOINT.format(step)).open("rb") as stream:
        return dict(json.loads(zstandard.ZstdDecompressor().stream_reader(stream).read()))


def rewrite(run: Path, step: int, change: Callable[[dict[str, Any]], object]) -> Path:
    """Change a checkpoint of a copied run."""
    whole = document(run, step)
    change(whole)
    path = run / CHECKPOINT.format(step)
    path.write_bytes(zstandard.compress(json.dumps(whole).encode()))
    return path


def lines(run: Path) -> list[dict[str, Any]]:
    """Return the scalar lines of a run."""
    with (run / "scalars.jsonl.zst").open("rb") as stream:
        text = zstandard.ZstdDecompressor().stream_reader(stream).read()
    return [json.loads(line) for line in text.splitlines()]


def relog(run: Path, change: Callable[[list[dict[str, Any]]], object]) -> Path:
    """Change the scalar lines of a copied run."""
    found = lines(run)
    change(found)
    (run / "scalars.jsonl.zst").write_bytes(zstandard.compress("".join(json.dumps(each) + "\n" for each in found).encode()))
    return run


def manifest(run: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Change run.json of a copied run."""
    path = run / "run.json"
    whole = json.loads(path.read_text())
    change(whole)
    path.write_text(json.dumps(whole))
    return run
