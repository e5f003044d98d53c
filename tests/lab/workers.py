"""What stands in for a training in a process of its own."""

import os
from multiprocessing.connection import Connection
from pathlib import Path

CODE = 9


def work(name: str, seed: int, cache: Path, answer: Connection) -> None:
    """Succeed, fail or die, by the name."""
    if name == "healthy_mlp":
        os._exit(CODE)
    answer.send((0, "ValueError: it does not train") if name == "healthy_moe" else (7, ""))
