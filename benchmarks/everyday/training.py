"""One training in parts that can be exchanged, and the plain loop that runs and records it."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import torch
from msgspec import Struct, field
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from benchmarks.everyday.data import Batch, Batches
from ckaudit.recorder import Recorder

Criterion = Callable[[Tensor, Tensor], Tensor]


class Training(Struct, kw_only=True):
    """What a user's script consists of.

    Attributes:
        model: The model.
        optimizer: Makes the optimizer of parameters or groups of them.
        steps: Updates of the training.
        batches: What the loader yields; empty batches where the loss draws its own data.
        criterion: Loss of the outputs of a batch, given its targets: its last column.
        loss: Loss of a batch, where it is not the criterion of the model's outputs.
        held_out: What the validation loss is computed on.
        evaluate: Validation loss, where it is not the loss of `held_out`.
        every: Steps from one validation to the next.
        schedule: Makes the schedule of an optimizer; None: the learning rate is constant.
        parameters: What the optimizer is given; None: all that can be trained.
        clip: Largest gradient norm.
        accumulate: Batches of an update.
        averages: Whether the loss of several batches is their mean, in place of their sum.
        zeroes: Whether gradients are zeroed before a step.
        updates: Whether the optimizer takes the step of a number.
        evaluates_apart: Whether a validation switches to evaluation mode.
        begin: Is called before each step, with its number.
        updated: Is called after each update, with the number of the step.
        stop: Step after which the program ends and is started anew, with the weights and the schedule alone.
        restart: Is called at the new start.
        facts: What the recorder is told of the run.
    """

    model: nn.Module
    optimizer: partial[Any]
    steps: int
    batches: Batches = field(default_factory=lambda: repeat(()))
    criterion: Criterion = field(default_factory=nn.CrossEntropyLoss)
    loss: Callable[[Batch], Tensor] | None = None
    held_out: Batch | None = None
    evaluate: Callable[[], Tensor] | None = None
    every: int = 50
    schedule: Callable[[Optimizer], LRScheduler] | None = None
    parameters: Sequence[Any] | None = None
    clip: float | None = None
    accumulate: int = 1
    averages: bool = True
    zeroes: bool = True
    updates: Callable[[int], bool] = lambda _step: True
    evaluates_apart: bool = True
    begin: Callable[[int], None] = lambda _step: None
    updated: Callable[[int], None] = lambda _step: None
    stop: int | None = None
    restart: Callable[[], None] = lambda: None
    facts: dict[str, Any] = {}

    def loss_of(self, batch: Batch) -> Tensor:
        """Return the loss of a batch."""
        return self.loss(batch) if self.loss else self.criterion(self.model(batch[0]), batch[-1])


def run(training: Training, folder: Path) -> None:
    """Run a training and record it into a folder."""
    stop = training.stop or training.steps
    first = _Session(training)
    first.run(folder, range(1, stop + 1))
    if training.stop:
        training.restart()
        second = _Session(training)
        second.take_schedule(first)
        second.run(folder, range(stop + 1, training.steps + 1))


class _Session:
    """One start of the program."""

    def __init__(self, training: Training) -> None:
        trainable = [parameter for parameter in training.model.parameters() if parameter.requires_grad]
        self._training = training
        self.optimizer: Optimizer = training.optimizer(trainable if training.parameters is None else training.parameters)
        self.schedule = training.schedule(self.optimizer) if training.schedule else None

    def take_schedule(self, earlier: "_Session") -> None:
        """Go on where the schedule of an earlier start was."""
        if self.schedule and earlier.schedule:
            self.schedule.load_state_dict(earlier.schedule.state_dict())
        for group, before in zip(self.optimizer.param_groups, earlier.optimizer.param_groups, strict=True):
            group["lr"] = before["lr"]

    def run(self, folder: Path, steps: range) -> None:
        """Take steps of these numbers."""
        training = self._training
        options: dict[str, Any] = {"optimizer": self.optimizer, "start_step": steps.start - 1}
        with Recorder(training.model, folder, **options, **training.facts) as recorder:
            for step in steps:
                training.begin(step)
                self._step(step, recorder)
                if step % training.every == 0 and (training.evaluate or training.held_out):
                    recorder.log_after(val_loss=self._validate())

    def _step(self, step: int, recorder: Recorder) -> None:
        training = self._training
        if training.zeroes:
            self.optimizer.zero_grad()
        loss, batch = self._differentiate()
        recorder.after_backward()
        if training.clip:
            nn.utils.clip_grad_norm_(training.model.parameters(), training.clip)
        if training.updates(step):
            self.optimizer.step()
        if self.schedule:
            self.schedule.step()
        training.updated(step)
        recorder.step(loss, batch=batch or None)

    def _differentiate(self) -> tuple[Tensor, Batch]:
        """Compute the gradients of an update, and return its loss and its last batch."""
        training, losses, batch = self._training, list[Tensor](), Batch()
        for _ in range(training.accumulate):
            batch = next(training.batches)
            losses.append(training.loss_of(batch) / (training.accumulate if training.averages else 1))
            losses[-1].backward()
        return torch.stack(losses).sum(), batch

    def _validate(self) -> float:
        training = self._training
        training.model.train(not training.evaluates_apart)
        with torch.no_grad():
            loss = training.evaluate() if training.evaluate else training.loss_of(training.held_out or ())
        training.model.train()
        return loss.item()
