"""A user's own loop with the plain recorder: every action that a training can take at a step."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from msgspec import Struct
from msgspec.structs import replace
from torch import Tensor, nn
from torch.optim import Optimizer

from ckaudit.lab.zoo.optimizers import ScheduleFreeAdamW, optimizer_of, optimizers_of, schedule_of
from ckaudit.lab.zoo.recipe import Batch, Batches, Opponent, Recipe, batches, own_loss
from ckaudit.recorder import Recorder

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class Materials(Struct, frozen=True):
    """The inputs of a training.

    Attributes:
        model: The model.
        train: Rows to train on.
        held_out: Rows to validate on.
        folder: The run folder.
        seed: The seed of the model, and the one that is recorded.
        order: The seed of the order of batches.
    """

    model: nn.Module
    train: Batch
    held_out: Batch
    folder: Path
    seed: int
    order: int


def by_loop(recipe: Recipe, materials: Materials) -> None:
    """Train in a loop, with a resume if the recipe has one."""
    first = Loop(recipe, materials, materials.model, start=0)
    first.run(recipe.resume.after if recipe.resume else recipe.steps)
    if recipe.resume:
        torch.manual_seed(materials.seed + 1)  # a new process draws other random numbers
        second = Loop(recipe, materials, recipe.model(), start=recipe.resume.after)
        second.restore(first)
        second.run(recipe.steps)


class Loop:
    """A user's own loop, starting at a step.

    Args:
        recipe: The recipe.
        materials: The inputs of the training.
        model: The model.
        start: Number of steps of earlier sessions.
    """

    def __init__(self, recipe: Recipe, materials: Materials, model: nn.Module, *, start: int) -> None:
        self._recipe, self._materials, self._start, self.model = recipe, materials, start, model
        self.optimizers: list[Optimizer] = optimizers_of(recipe, model)
        self.schedules = [schedule_of(recipe, optimizer) for optimizer in self.optimizers]
        self.source: Batches = batches(materials.train, recipe.batch, materials.order, shuffled=recipe.shuffled)
        if recipe.feed:
            self.source = recipe.feed(self.source)
        self._scaler = torch.amp.GradScaler("cpu", growth_interval=recipe.scale_grows) if recipe.precision == "float16" else None
        self._forward: Any = model
        self._backward: Callable[[Tensor], None] = lambda loss: loss.backward()
        if recipe.through == "accelerate":
            self._accelerate()
        self._rival = Rival(recipe, recipe.opponent, model) if recipe.opponent else None

    def _accelerate(self) -> None:
        from accelerate import Accelerator

        accelerator = Accelerator(cpu=True)
        self._forward, *self.optimizers = accelerator.prepare(self.model, *self.optimizers)
        self._backward = accelerator.backward

    def restore(self, earlier: "Loop") -> None:
        """Restore the state of the interrupted loop that the recipe says."""
        resume = self._recipe.resume
        if resume is None:
            return
        self.model.load_state_dict(earlier.model.state_dict())
        if resume.data:
            self.source = earlier.source
        for optimizer, schedule, old, before in zip(
            self.optimizers, self.schedules, earlier.optimizers, earlier.schedules, strict=True
        ):
            if resume.optimizer:
                optimizer.load_state_dict(deepcopy(old.state_dict()))
            schedule.load_state_dict(before.state_dict())
            schedule.base_lrs = [rate * resume.rate for rate in schedule.base_lrs]
            for group, base in zip(optimizer.param_groups, schedule.base_lrs, strict=True):
                group["lr"] = float(base) * schedule.lr_lambdas[0](self._start)

    def run(self, last: int) -> None:
        """Train to a step, and close the recorder."""
        recipe = self._recipe
        facts: dict[str, Any] = {"seed": self._materials.seed, "planned_steps": recipe.steps}
        if recipe.clip:
            facts["clip_norm"] = recipe.clip
        held = [*self.optimizers, *([self._rival.optimizer] if self._rival else [])]
        options: dict[str, Any] = {"optimizer": held, "start_step": self._start, "scaler": self._scaler}
        with Recorder(self._forward, self._materials.folder, **options | facts | dict(recipe.facts)) as recorder:
            if recipe.names_held_out:
                recorder.hold_out(self._recorded_batch(self._materials.held_out))
            for step in range(self._start + 1, last + 1):
                self._step(step, recorder)

    def _recorded_batch(self, batch: Batch) -> Any:
        """Return a batch in the form that the recorder gets."""
        return batch if self._recipe.loss is own_loss else tuple(batch.values())

    def _autocast(self) -> AbstractContextManager[Any]:
        kind = DTYPES.get(self._recipe.precision)
        return torch.autocast("cpu", kind, enabled=kind is not None)

    def _step(self, step: int, recorder: Recorder) -> None:
        recipe, total, batch = self._recipe, 0.0, dict[str, Tensor]()
        for _ in range(recipe.accumulate):
            batch = next(self.source)
            with self._rival.turn(batch) if self._rival else nullcontext():
                with self._autocast():
                    loss = recipe.loss(self._forward, batch) / recipe.accumulate
                self._backward(loss if self._scaler is None else self._scaler.scale(loss))
            total += float(loss.detach())
        self._update(step, recorder)
        if recipe.held_out and step % recipe.every == 0:
            recorder.log(val_loss=self._validate())
        recorder.step(total, batch=self._recorded_batch(batch))
        if recipe.zeroes:
            for optimizer in self.optimizers:
                optimizer.zero_grad()

    def _update(self, step: int, recorder: Recorder) -> None:
        recipe, scaler = self._recipe, self._scaler
        if scaler:
            for optimizer in self.optimizers:
                scaler.unscale_(optimizer)
        if recipe.gradients:
            recipe.gradients(self.model, self.optimizers[0], step)
        recorder.after_backward()
        if recipe.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), recipe.clip)
        if recipe.clip_value:
            nn.utils.clip_grad_value_(self.model.parameters(), recipe.clip_value)
        for optimizer in self.optimizers if recipe.updates is None or recipe.updates(step) else ():
            optimizer.step() if scaler is None else scaler.step(optimizer)
        if scaler:
            scaler.update()
        for schedule in self.schedules:
            schedule.step()

    def _validate(self) -> float:
        self.model.train(not self._recipe.eval_mode)
        averaged = [optimizer for optimizer in self.optimizers if isinstance(optimizer, ScheduleFreeAdamW)]
        for optimizer in averaged:
            optimizer.eval()
        with torch.no_grad():
            loss = float(self._recipe.loss(self._forward, self._materials.held_out))
        for optimizer in averaged:
            optimizer.train()
        self.model.train()
        return loss


class Rival:
    """The other player of a game: it takes a step before each step of the model, which does not change its weights.

    Args:
        recipe: The recipe.
        opponent: Its loss and its part of the model.
        model: The model.
    """

    def __init__(self, recipe: Recipe, opponent: Opponent, model: nn.Module) -> None:
        self._loss, self._model, self._part = opponent.loss, model, model.get_submodule(opponent.part)
        self.optimizer = optimizer_of(replace(recipe, trained=lambda name: name.startswith(f"{opponent.part}.")), model)

    @contextmanager
    def turn(self, batch: Batch) -> Iterator[None]:
        """Take the step, and freeze the player's weights while the model takes its own."""
        self.optimizer.zero_grad()
        self._loss(self._model, batch).backward()
        self.optimizer.step()
        held = [weight for weight in self._part.parameters() if weight.requires_grad]
        for weight in held:
            weight.requires_grad = False
        yield
        for weight in held:
            weight.requires_grad = True
