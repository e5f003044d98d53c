"""Short trainings for tests of the loop itself."""

from pathlib import Path
from typing import Any

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Data, Gpt, Plan
from ckaudit.lab.training import Training
from tests.lab import small

SMALL = Gpt(width=16, depth=2, heads=4, hidden=24)
SHORT = Plan(model=SMALL, data=Data(batch_size=8, length=24, held_rows=8), steps=40, stop=6, eval_every=3)


def trained(plan: Plan, folder: Path, change: Change | None = None) -> Training:
    """Train on one thread and return the training."""
    return small.trained(change or Change(), folder, plan)


def column(folder: Path, name: str) -> list[Any]:
    """Return the values of a scalar, in the order of steps."""
    return [value for _, value in sorted(small.column(folder, name).items())]
