"""Ways in which users train with a recorder: a loop of their own, Accelerate, Lightning, the Trainer of transformers."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ckaudit.lab.zoo.recipe import Batch, Batches, Recipe, batches, optimizer_of, own_loss, schedule_of
from ckaudit.recorder import Recorder


class Materials(Struct, frozen=True):
    """What a training begins with.

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


def train(recipe: Recipe, folder: Path, seed: int, *, data_seed: int | None = None, order_seed: int | None = None) -> None:
    """Train by a recipe, and record it into a folder.

    Args:
        recipe: The training.
        folder: The run folder.
        seed: The seed of the model; of data and order too, where they have none of their own.
        data_seed: The seed of the rows.
        order_seed: The seed of the order of batches.
    """
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = recipe.model()
    of_data = torch.Generator().manual_seed(1_000 + (seed if data_seed is None else data_seed))
    rows = recipe.rows(of_data, recipe.train + recipe.held_out)
    learnt = {name: column[: recipe.train] for name, column in rows.items()}
    held_out = {name: column[recipe.train :] for name, column in rows.items()}
    by: dict[str, Callable[[Recipe, Materials], None]] = {
        "transformers": _by_transformers,
        "lightning": _by_lightning,
        "accelerate": _by_loop,
        "loop": _by_loop,
    }
    order = seed if order_seed is None else order_seed
    by[recipe.through](recipe, Materials(model, learnt, held_out, folder, seed, order))


def _by_loop(recipe: Recipe, materials: Materials) -> None:
    first = _Loop(recipe, materials, materials.model, start=0)
    first.run(recipe.resume.after if recipe.resume else recipe.steps)
    if recipe.resume:
        torch.manual_seed(materials.seed + 1)  # a new process draws other numbers
        second = _Loop(recipe, materials, recipe.model(), start=recipe.resume.after)
        second.restore(first)
        second.run(recipe.steps)


class _Loop:
    """A user's own loop, from a step on.

    Args:
        recipe: What is trained.
        materials: What it is trained on.
        model: The model.
        start: Steps that an earlier session took.
    """

    def __init__(self, recipe: Recipe, materials: Materials, model: nn.Module, *, start: int) -> None:
        self._recipe, self._materials, self._start, self.model = recipe, materials, start, model
        self.optimizer: Optimizer = optimizer_of(recipe, model)
        self.schedule = schedule_of(recipe, self.optimizer)
        self.source: Batches = batches(materials.train, recipe.batch, materials.order)
        if recipe.feed:
            self.source = recipe.feed(self.source)
        self._forward: Any = model
        self._backward: Callable[[Tensor], None] = lambda loss: loss.backward()
        if recipe.through == "accelerate":
            self._accelerate()

    def _accelerate(self) -> None:
        from accelerate import Accelerator

        accelerator = Accelerator(cpu=True)
        self._forward, self.optimizer = accelerator.prepare(self.model, self.optimizer)
        self._backward = accelerator.backward

    def restore(self, earlier: "_Loop") -> None:
        """Take over from the loop that was interrupted what the recipe says."""
        resume = self._recipe.resume
        if resume is None:
            return
        self.model.load_state_dict(earlier.model.state_dict())
        if resume.optimizer:
            self.optimizer.load_state_dict(deepcopy(earlier.optimizer.state_dict()))
        if resume.data:
            self.source = earlier.source
        self.schedule.load_state_dict(earlier.schedule.state_dict())
        if resume.rate != 1.0:
            self.schedule.base_lrs = [rate * resume.rate for rate in self.schedule.base_lrs]
        for group, rate in zip(self.optimizer.param_groups, self._rates(), strict=True):
            group["lr"] = rate

    def _rates(self) -> list[float]:
        factor = self.schedule.lr_lambdas[0](self._start)
        return [float(base) * factor for base in self.schedule.base_lrs]

    def run(self, last: int) -> None:
        """Train to a step, and close the recorder."""
        recipe = self._recipe
        facts: dict[str, Any] = {"seed": self._materials.seed, "planned_steps": recipe.steps}
        if recipe.clip:
            facts["clip_norm"] = recipe.clip
        options: dict[str, Any] = {"optimizer": self.optimizer, "start_step": self._start} | facts | dict(recipe.facts)
        with Recorder(self._forward, self._materials.folder, **options) as recorder:
            for step in range(self._start + 1, last + 1):
                self._step(step, recorder)

    def _step(self, step: int, recorder: Recorder) -> None:
        recipe, total, batch = self._recipe, 0.0, dict[str, Tensor]()
        for _ in range(recipe.accumulate):
            batch = next(self.source)
            with torch.autocast("cpu", torch.bfloat16, enabled=recipe.bf16):
                loss = recipe.loss(self._forward, batch) / recipe.accumulate
            self._backward(loss)
            total += float(loss.detach())
        if recipe.gradients:
            recipe.gradients(self.model, self.optimizer, step)
        recorder.after_backward()
        if recipe.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), recipe.clip)
        if recipe.updates is None or recipe.updates(step):
            self.optimizer.step()
        self.schedule.step()
        if recipe.held_out and step % recipe.every == 0:
            recorder.log(val_loss=self._validate())
        recorder.step(total, batch=batch if recipe.loss is own_loss else tuple(batch.values()))
        if recipe.zeroes:
            self.optimizer.zero_grad()

    def _validate(self) -> float:
        self.model.train(not self._recipe.eval_mode)
        with torch.no_grad():
            loss = float(self._recipe.loss(self._forward, self._materials.held_out))
        self.model.train()
        return loss


def _patch_updates(recipe: Recipe, optimizer: Optimizer) -> Optimizer:
    """Make an optimizer leave out the steps that the recipe leaves out; for trainers that call it themselves."""
    if recipe.updates is None:
        return optimizer
    taken, updates, count = optimizer.step, recipe.updates, 0

    def step(_optimizer: Optimizer, closure: Any = None) -> Any:
        nonlocal count
        count += 1
        return taken(closure) if updates(count) else (closure() if closure else None)

    optimizer.step = MethodType(step, optimizer)  # type: ignore[method-assign]  # a schedule asks for a method to wrap
    return optimizer


def _by_lightning(recipe: Recipe, materials: Materials) -> None:
    import warnings

    from lightning.pytorch import Trainer
    from torch.utils.data import DataLoader, TensorDataset

    from ckaudit.recorder.lightning import RecorderCallback

    warnings.filterwarnings("ignore", module="lightning")
    loader = DataLoader(
        TensorDataset(*materials.train.values()),
        batch_size=recipe.batch,
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(materials.order),
    )
    validation = DataLoader(TensorDataset(*materials.held_out.values()), batch_size=128) if recipe.held_out else None
    trainer = Trainer(
        accelerator="cpu",
        max_steps=recipe.steps,
        max_epochs=-1,
        gradient_clip_val=recipe.clip,
        accumulate_grad_batches=recipe.accumulate,
        precision="bf16-mixed" if recipe.bf16 else "32-true",
        check_val_every_n_epoch=None,
        val_check_interval=recipe.every * recipe.accumulate,
        callbacks=[RecorderCallback(materials.folder, seed=materials.seed, **recipe.facts)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(_lightning_module(recipe, materials), loader, validation)


def _lightning_module(recipe: Recipe, materials: Materials) -> Any:
    from lightning.pytorch import LightningModule

    names = list(materials.train)

    class Module(LightningModule):  # type: ignore[misc]
        """The model, as its user would hand it to Lightning."""

        def __init__(self) -> None:
            super().__init__()
            self.model = materials.model

        def training_step(self, batch: list[Tensor], _index: int) -> Tensor:
            return recipe.loss(self.model, dict(zip(names, batch, strict=True)))

        def validation_step(self, batch: list[Tensor], index: int) -> None:
            self.log("val_loss", self.training_step(batch, index))

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            if recipe.gradients:
                recipe.gradients(self.model, optimizer, self.global_step + 1)

        def configure_optimizers(self) -> Any:
            optimizer = _patch_updates(recipe, optimizer_of(recipe, self.model))
            return [optimizer], [{"scheduler": schedule_of(recipe, optimizer), "interval": "step"}]

    return Module()


def _by_transformers(recipe: Recipe, materials: Materials) -> None:
    from transformers import PrinterCallback, Trainer, TrainerCallback

    from ckaudit.recorder.huggingface import RecorderCallback

    def listed(columns: Batch) -> list[dict[str, Tensor]]:
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    class Step(TrainerCallback):  # type: ignore[misc]
        """Hands each step to what is to go wrong."""

        def on_pre_optimizer_step(self, _args: Any, state: Any, _control: Any, **given: Any) -> None:
            if recipe.gradients:
                recipe.gradients(given["model"], given["optimizer"], state.global_step + 1)

    trainer = Trainer(
        materials.model,
        _training_arguments(recipe, materials),
        train_dataset=listed(materials.train),
        eval_dataset=listed(materials.held_out) if recipe.held_out else None,
        callbacks=[Step(), RecorderCallback(materials.folder, **recipe.facts)],
        optimizers=(None, None) if _is_stock(recipe) else _own_optimizer(recipe, materials.model),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()


def _training_arguments(recipe: Recipe, materials: Materials) -> Any:
    from transformers import TrainingArguments

    return TrainingArguments(
        str(materials.folder.with_name(materials.folder.name + ".out")),
        max_steps=recipe.steps,
        per_device_train_batch_size=recipe.batch,
        per_device_eval_batch_size=128,
        gradient_accumulation_steps=recipe.accumulate,
        learning_rate=recipe.lr,
        weight_decay=recipe.weight_decay,
        adam_epsilon=recipe.eps,
        lr_scheduler_type=STOCK_SCHEDULES.get(recipe.schedule, "constant"),
        warmup_steps=recipe.warmup,
        optim=STOCK_OPTIMIZERS.get(recipe.optimizer, "adamw_torch"),
        seed=materials.seed,
        data_seed=None if materials.order == materials.seed else materials.order,
        bf16=recipe.bf16,
        max_grad_norm=recipe.clip or 0.0,
        eval_strategy="steps" if recipe.held_out else "no",
        eval_steps=recipe.every,
        logging_steps=recipe.every,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        dataloader_drop_last=True,
    )


STOCK_OPTIMIZERS = {"adamw": "adamw_torch", "adafactor": "adafactor", "sgd": "sgd", "rmsprop": "rmsprop", "adagrad": "adagrad"}
STOCK_SCHEDULES = {"constant": "constant_with_warmup", "cosine": "cosine", "linear": "linear"}


def _is_stock(recipe: Recipe) -> bool:
    """Tell whether words for the Trainer say all of the optimizer and its schedule."""
    plain = recipe.trained is None and recipe.rate is None and recipe.updates is None and recipe.horizon == 1.0
    return plain and recipe.optimizer in STOCK_OPTIMIZERS and recipe.schedule in STOCK_SCHEDULES


def _own_optimizer(recipe: Recipe, model: nn.Module) -> tuple[Optimizer, LRScheduler]:
    optimizer = optimizer_of(recipe, model)
    schedule = schedule_of(recipe, optimizer)
    return _patch_updates(recipe, optimizer), schedule
