"""The checkpoint files of a finished run, for faults that act on them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

PREFIX = "analysis_checkpoint_step_"


def checkpoints(folder: Path) -> dict[int, Path]:
    """Return the checkpoint files by step, in order; those of single ranks are left out."""
    found = {path.name.removeprefix(PREFIX).partition("."): path for path in sorted(folder.glob(f"{PREFIX}*"))}
    return {int(step): path for (step, _, suffix), path in found.items() if not suffix.startswith("rank")}


def rewrite(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Write a checkpoint again after `change` has altered its document in place."""
    from ckaudit.contract.io.codec import encode
    from ckaudit.contract.io.files import read_bytes

    document = msgspec.json.decode(read_bytes(path, path.name))
    change(document)
    path.write_bytes(encode(document, path.name[path.name.index(".") :]))
