"""Short trainings for tests of the loop itself."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.multiprocessing.spawn import start_processes

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Data, Gpt, Plan
from ckaudit.lab.training import Training
from tests.lab import small

SMALL = Gpt(width=16, depth=2, heads=4, hidden=24)
SHORT = Plan(model=SMALL, data=Data(batch_size=8, length=24, held_rows=8), steps=40, stop=6, eval_every=3)


def trained(plan: Plan, folder: Path, change: Change | None = None) -> Training:
    """Train on one thread and return the training."""
    return small.trained(change or Change(), folder, plan)


def fork(rank: Callable[..., None], args: tuple[Any, ...], nprocs: int) -> None:
    """Start ranks as `torch.multiprocessing.spawn` does, but forked: one that is spawned imports torch, longer than it trains."""
    start_processes(rank, args, nprocs, start_method="fork")


def column(folder: Path, name: str) -> list[Any]:
    """Return the values of a scalar, in the order of steps."""
    return [value for _, value in sorted(small.column(folder, name).items())]
