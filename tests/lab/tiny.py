"""A tiny training into which a fault steps, and what happened in each of its steps."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Data, Gpt, Optimizer, Plan, Schedule
from ckaudit.lab.specs import faults
from ckaudit.lab.task import Batch
from ckaudit.lab.training import Training

TINY = Plan(
    model=Gpt(width=8, depth=3, heads=2, hidden=12),
    data=Data(batch_size=4, length=16, held_rows=6),
    optimizer=Optimizer(clip=None, weight_decay=0.0),
    schedule=Schedule(warmup=1, final=0.1),
    steps=6,
    eval_every=100,
)


class Seen:
    """What was seen of a training, by step.

    Attributes:
        clean: What the loader gave.
        batches: What the model was given.
        losses: What the recorder was told.
        gradients: Of each tensor by name, before clipping; None where there is none.
        rates: What the optimizer used.
        weights: Of each tensor by name after the step; 0: before the first.
    """

    def __init__(self) -> None:
        self.clean: dict[int, Batch] = {}
        self.batches: dict[int, Batch] = {}
        self.losses: dict[int, float] = {}
        self.gradients: dict[int, dict[str, Tensor | None]] = {}
        self.rates: dict[int, float] = {}
        self.weights: dict[int, dict[str, Tensor]] = {}

    def moved(self, step: int, prefix: str = "") -> set[str]:
        """Return the tensors that the step changed."""
        before, after = self.weights[step - 1], self.weights[step]
        return {name for name in after if name.startswith(prefix) and not torch.equal(before[name], after[name])}

    def names(self, prefix: str = "") -> set[str]:
        """Return the tensors whose names begin so."""
        return {name for name in self.weights[0] if name.startswith(prefix)}


@contextmanager
def started(name: str | None, plan: Plan = TINY, *, onset: int = 0, strength: float = 1.0) -> Iterator[tuple[Training, Seen]]:
    """Build a training, without a fault or with one, and note what happens when it runs."""
    seen = Seen()
    kind = faults()[name].change if name else Change
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        training = Training(plan, _watched(kind, seen)(onset, strength), Path(folder))
        seen.weights[0] = weights(training)
        yield training, seen
        training.recorder.close()
    torch.set_num_threads(threads)


def train(name: str | None, plan: Plan = TINY, *, onset: int = 0, strength: float = 1.0, **changed: Any) -> Seen:
    """Train with a fault, or without; further arguments replace parts of the plan."""
    with started(name, replace(plan, **changed), onset=onset, strength=strength) as (training, seen):
        training.run()
    return seen


def weights(training: Training) -> dict[str, Tensor]:
    """Return copies of all weights."""
    return {name: value.detach().clone() for name, value in training.model.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Whether two sets of weights are equal to the bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def _watched(kind: type[Change], seen: Seen) -> type[Change]:
    class Watched(kind):  # type: ignore[misc, valid-type]
        def batch(self, training: Training, batch: Batch) -> Batch:
            seen.clean[training.step] = batch
            seen.batches[training.step] = super().batch(training, batch)
            return seen.batches[training.step]

        def clip(self, training: Training) -> None:
            seen.rates[training.step] = training.optimizer.param_groups[0]["lr"]
            seen.gradients[training.step] = {
                name: None if p.grad is None else p.grad.clone() for name, p in training.model.named_parameters()
            }
            super().clip(training)

        def shown_loss(self, training: Training, loss: Tensor) -> Tensor | float:
            shown = super().shown_loss(training, loss)
            seen.losses[training.step] = float(shown)
            seen.weights[training.step] = weights(training)
            return shown

    return Watched
