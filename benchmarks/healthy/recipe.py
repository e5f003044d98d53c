"""What a healthy training is made of, and the three ways in which users train it with the recorder beside."""

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

Batch = Mapping[str, Tensor]
Rows = Callable[[torch.Generator, int], dict[str, Tensor]]
Loss = Callable[[Any, Batch], Tensor]
Damage = Callable[[nn.Module, Optimizer, int], None]


def own_loss(model: Any, batch: Batch) -> Tensor:
    """Return the loss that a model of transformers computes by itself."""
    found: Tensor = model(**batch).loss
    return found


class Recipe(Struct, frozen=True, kw_only=True):
    """A healthy training of one family of models.

    Attributes:
        model: Makes the model; the seed is set before.
        rows: Makes so many rows of data, column by column; the tensors of a column are one per row, along the first axis.
        through: Who trains: the Trainer of transformers, Lightning, or a loop with the plain `Recorder`.
        loss: Loss of a batch; the Trainer takes the model's own.
        optimizer: Word for the optimizer.
        lr: Peak learning rate.
        momentum: Of SGD and RMSprop.
        weight_decay: As the optimizer takes it.
        schedule: Course of the learning rate.
        warmup: Steps of linear warmup.
        clip: Largest gradient norm, or None.
        batch: Rows of a micro-batch.
        accumulate: Micro-batches of a step.
        train: Rows to train on.
        held_out: Rows to validate on; 0: there is no validation.
        steps: Steps of the training.
        every: Steps from one validation to the next.
        bf16: Whether the forward pass runs under autocast in bfloat16.
        facts: What the user says of the run.
        before_step: Steps into the loop after the backward pass; for trainings that are to go wrong.
        zeroes: Whether gradients are zeroed after a step; only a plain loop can forget it.
    """

    model: Callable[[], nn.Module]
    rows: Rows
    through: Literal["transformers", "lightning", "loop"] = "loop"
    loss: Loss = own_loss
    optimizer: Literal["adamw", "adam", "sgd", "rmsprop", "adafactor", "adagrad"] = "adamw"
    lr: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0
    schedule: Literal["constant", "cosine", "linear", "onecycle"] = "constant"
    warmup: int = 0
    clip: float | None = None
    batch: int = 16
    accumulate: int = 1
    train: int = 2048
    held_out: int = 128
    steps: int = 200
    every: int = 20
    bf16: bool = False
    facts: Mapping[str, Any] = {}
    before_step: Damage | None = None
    zeroes: bool = True


def train(recipe: Recipe, folder: Path, seed: int) -> None:
    """Train by a recipe, and record it into a folder."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = recipe.model()
    data = torch.Generator().manual_seed(1_000 + seed)
    rows = recipe.rows(data, recipe.train + recipe.held_out)
    learnt = {name: column[: recipe.train] for name, column in rows.items()}
    held_out = {name: column[recipe.train :] for name, column in rows.items()}
    {"transformers": _by_transformers, "lightning": _by_lightning, "loop": _by_loop}[recipe.through](
        recipe, model, learnt, held_out, folder, seed
    )


def optimizer_of(recipe: Recipe, model: nn.Module) -> Optimizer:
    """Return the optimizer of the parameters that are to be trained."""
    wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
    rest = {"lr": recipe.lr, "weight_decay": recipe.weight_decay}
    match recipe.optimizer:
        case "sgd":
            return torch.optim.SGD(wanted, momentum=recipe.momentum, **rest)
        case "rmsprop":
            return torch.optim.RMSprop(wanted, momentum=recipe.momentum, **rest)
        case "adam":
            return torch.optim.Adam(wanted, **rest)
        case "adagrad":
            return torch.optim.Adagrad(wanted, **rest)
        case "adafactor":
            return torch.optim.Adafactor(wanted, **rest)
        case _:
            return torch.optim.AdamW(wanted, **rest)


def schedule_of(recipe: Recipe, optimizer: Optimizer) -> LambdaLR:
    """Return the course of the learning rate, a step at a time."""

    def factor(step: int) -> float:
        if recipe.schedule == "onecycle":
            peak = 0.3 * recipe.steps
            if step < peak:
                return 0.04 + 0.96 * (1 - math.cos(math.pi * step / peak)) / 2
            return 1e-5 + (1 + math.cos(math.pi * min(1.0, (step - peak) / (recipe.steps - peak)))) / 2
        if step < recipe.warmup:
            return (step + 1) / (recipe.warmup + 1)
        part = min(1.0, (step - recipe.warmup) / max(1, recipe.steps - recipe.warmup))
        return {"constant": 1.0, "linear": 1 - part, "cosine": (1 + math.cos(math.pi * part)) / 2}[recipe.schedule]

    return LambdaLR(optimizer, factor)


def batches(rows: Batch, size: int, seed: int) -> Iterator[dict[str, Tensor]]:
    """Yield shuffled batches, one epoch after the other, without an end."""
    count, source = len(next(iter(rows.values()))), torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(count, generator=source)
        for start in range(0, count - min(size, count) + 1, size):
            yield {name: column[order[start : start + size]] for name, column in rows.items()}


def _by_loop(recipe: Recipe, model: nn.Module, learnt: Batch, held_out: Batch, folder: Path, seed: int) -> None:
    from ckaudit.recorder import Recorder

    optimizer = optimizer_of(recipe, model)
    schedule, source = schedule_of(recipe, optimizer), batches(learnt, recipe.batch, seed)
    facts = (
        {"seed": seed, "planned_steps": recipe.steps} | ({"clip_norm": recipe.clip} if recipe.clip else {}) | dict(recipe.facts)
    )
    with Recorder(model, folder, optimizer=optimizer, **facts) as recorder:
        for step in range(1, recipe.steps + 1):
            total = 0.0
            for _ in range(recipe.accumulate):
                batch = next(source)
                with torch.autocast("cpu", torch.bfloat16, enabled=recipe.bf16):
                    loss = recipe.loss(model, batch) / recipe.accumulate
                loss.backward()
                total += float(loss)
            if recipe.before_step:
                recipe.before_step(model, optimizer, step)
            recorder.after_backward()
            if recipe.clip:
                nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
            optimizer.step()
            schedule.step()
            if recipe.held_out and step % recipe.every == 0:
                recorder.log(val_loss=_validate(recipe, model, held_out))
            recorder.step(total, batch=tuple(batch.values()))
            if recipe.zeroes:
                optimizer.zero_grad()


def _validate(recipe: Recipe, model: nn.Module, rows: Batch) -> float:
    model.eval()
    with torch.no_grad():
        loss = float(recipe.loss(model, rows))
    model.train()
    return loss


def _by_lightning(recipe: Recipe, model: nn.Module, learnt: Batch, held_out: Batch, folder: Path, seed: int) -> None:
    import warnings

    from lightning.pytorch import LightningModule, Trainer
    from torch.utils.data import DataLoader, TensorDataset

    from ckaudit.recorder.lightning import RecorderCallback

    names = list(learnt)

    class Module(LightningModule):
        """The model, as its user would hand it to Lightning."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: list[Tensor], _index: int) -> Tensor:
            return recipe.loss(self.model, dict(zip(names, batch, strict=True)))

        def validation_step(self, batch: list[Tensor], index: int) -> None:
            self.log("val_loss", self.training_step(batch, index))

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            if recipe.before_step:
                recipe.before_step(self.model, optimizer, self.global_step + 1)

        def configure_optimizers(self) -> Any:
            optimizer = optimizer_of(recipe, self.model)
            return [optimizer], [{"scheduler": schedule_of(recipe, optimizer), "interval": "step"}]

    warnings.filterwarnings("ignore", module="lightning")
    loader = DataLoader(
        TensorDataset(*learnt.values()),
        batch_size=recipe.batch,
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(seed),
    )
    validation = DataLoader(TensorDataset(*held_out.values()), batch_size=128) if recipe.held_out else None
    trainer = Trainer(
        accelerator="cpu",
        max_steps=recipe.steps,
        max_epochs=-1,
        gradient_clip_val=recipe.clip,
        accumulate_grad_batches=recipe.accumulate,
        precision="bf16-mixed" if recipe.bf16 else "32-true",
        check_val_every_n_epoch=None,
        val_check_interval=recipe.every * recipe.accumulate,
        callbacks=[RecorderCallback(folder, seed=seed, **recipe.facts)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), loader, validation)


def _by_transformers(recipe: Recipe, model: nn.Module, learnt: Batch, held_out: Batch, folder: Path, seed: int) -> None:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from ckaudit.recorder.huggingface import RecorderCallback

    def listed(columns: Batch) -> list[dict[str, Tensor]]:
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    class Step(TrainerCallback):  # type: ignore[misc]
        """Hands each step to what is to go wrong."""

        def on_pre_optimizer_step(self, _args: Any, state: Any, _control: Any, **found: Any) -> None:
            if recipe.before_step:
                recipe.before_step(found["model"], found["optimizer"], state.global_step + 1)

    arguments = TrainingArguments(
        str(folder.with_name(folder.name + ".out")),
        max_steps=recipe.steps,
        per_device_train_batch_size=recipe.batch,
        per_device_eval_batch_size=128,
        gradient_accumulation_steps=recipe.accumulate,
        learning_rate=recipe.lr,
        weight_decay=recipe.weight_decay,
        lr_scheduler_type="constant_with_warmup" if recipe.warmup and recipe.schedule == "constant" else recipe.schedule,
        warmup_steps=recipe.warmup,
        optim={"adamw": "adamw_torch"}.get(recipe.optimizer, recipe.optimizer),
        seed=seed,
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
    trainer = Trainer(
        model,
        arguments,
        train_dataset=listed(learnt),
        eval_dataset=listed(held_out) if recipe.held_out else None,
        callbacks=[Step(), RecorderCallback(folder, **recipe.facts)],
    )
    trainer.train()
