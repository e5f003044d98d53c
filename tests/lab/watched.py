"""A training small enough for a test, with a fault in it or without."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import torch
from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Data, Gpt, Model, Optimizer, Plan, Schedule
from ckaudit.lab.training import Training

PLAN = Plan(
    model=Gpt(width=16, depth=2, heads=2, hidden=24),
    data=Data(batch_size=4, length=12, held_rows=4),
    optimizer=Optimizer(peak=0.012),
    schedule=Schedule(shape="linear", warmup=2, final=0.0),
    steps=12,
)
Seen = TypeVar("Seen")


def built(change: Change, *, model: Model = PLAN.model, data: Data = PLAN.data) -> Training:
    """Return a training that has not begun."""
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        training = Training(replace(PLAN, model=model, data=data), change, Path(folder) / "run")
        training.recorder.close()
        return training


def watched(
    change: Change, look: Callable[[Training], Seen], *, steps: int = 6, model: Model = PLAN.model, data: Data = PLAN.data
) -> list[Seen]:
    """Train a few steps and return what was seen after each."""
    torch.set_num_threads(1)
    plan = replace(PLAN, model=model, data=data, stop=steps)
    seen: list[Seen] = []
    with TemporaryDirectory() as folder:
        training = Training(plan, change, Path(folder) / "run")
        training.run(on_step=lambda _: seen.append(look(training)))
    return seen


def weights(training: Training) -> dict[str, torch.Tensor]:
    """Return a copy of every weight."""
    return {name: weight.detach().clone() for name, weight in training.model.named_parameters()}


def gradients(training: Training) -> dict[str, torch.Tensor]:
    """Return a copy of every gradient, as it was when the optimizer took it."""
    return {name: weight.grad.clone() for name, weight in training.model.named_parameters() if weight.grad is not None}
