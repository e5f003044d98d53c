"""The ways in which users train with a recorder: their own loop, Accelerate, Lightning, the trainers of transformers and TRL."""

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ckaudit.lab.zoo.loop import Materials, by_loop
from ckaudit.lab.zoo.optimizers import optimizer_of, schedule_of
from ckaudit.lab.zoo.recipe import Batch, Recipe
from ckaudit.lab.zoo.synthetic_data import WORDS
from ckaudit.lab.zoo.text_models import END, LENGTH, PAD, START


def train(recipe: Recipe, folder: Path, seed: int, *, data_seed: int | None = None, order_seed: int | None = None) -> None:
    """Train by a recipe, and record it into a folder.

    Args:
        recipe: The training.
        folder: The run folder.
        seed: The seed of the model, and of data and order if they have none of their own.
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
        "sft": _by_transformers,
        "dpo": _by_transformers,
        "lightning": _by_lightning,
        "accelerate": by_loop,
        "loop": by_loop,
    }
    order = seed if order_seed is None else order_seed
    by[recipe.through](recipe, Materials(model, learnt, held_out, folder, seed, order))


def _patch_updates(recipe: Recipe, optimizer: Optimizer) -> Optimizer:
    """Make an optimizer skip the steps that the recipe skips, for trainers that call it themselves."""
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

    from ckaudit.recorder.lightning import RecorderCallback

    warnings.filterwarnings("ignore", module="lightning")
    trainer = Trainer(
        accelerator="cpu",
        max_steps=recipe.steps,
        max_epochs=-1,
        gradient_clip_val=recipe.clip,
        accumulate_grad_batches=recipe.accumulate,
        precision="bf16-mixed" if recipe.precision == "bfloat16" else "32-true",
        check_val_every_n_epoch=None,
        val_check_interval=recipe.every * recipe.accumulate,
        callbacks=[RecorderCallback(materials.folder, seed=materials.seed, **recipe.facts)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(_lightning_module(recipe, materials), *_loaders(recipe, materials))


def _loaders(recipe: Recipe, materials: Materials) -> tuple[Any, Any]:
    """Return the loader of the training, and that of the held-out rows; None if there are none."""
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(
        TensorDataset(*materials.train.values()),
        batch_size=recipe.batch,
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(materials.order),
    )
    held_out = DataLoader(TensorDataset(*materials.held_out.values()), batch_size=128) if recipe.held_out else None
    return loader, held_out


def _lightning_module(recipe: Recipe, materials: Materials) -> Any:
    from lightning.pytorch import LightningModule

    names = list(materials.train)

    class Module(LightningModule):  # type: ignore[misc]
        """The model as a Lightning module."""

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
    from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

    from ckaudit.recorder.huggingface import RecorderCallback

    class Step(TrainerCallback):  # type: ignore[misc]
        """Passes each step to the fault's hook."""

        def on_pre_optimizer_step(self, _args: Any, state: Any, _control: Any, **given: Any) -> None:
            if recipe.gradients:
                recipe.gradients(given["model"], given["optimizer"], state.global_step + 1)

    make: Callable[..., Any] = Trainer
    arguments: Callable[..., Any] = TrainingArguments
    listed: Callable[[Batch], Any] = _listed
    options: dict[str, Any] = {}
    if recipe.through in ("sft", "dpo"):
        make, arguments, listed, options = _of_trl(recipe, materials.model)
    trainer = make(
        model=materials.model,
        args=arguments(**_training_arguments(recipe, materials)),
        train_dataset=listed(materials.train),
        eval_dataset=listed(materials.held_out) if recipe.held_out else None,
        callbacks=[Step(), RecorderCallback(materials.folder, **recipe.facts)],
        optimizers=(None, None) if _is_stock(recipe) else _own_optimizer(recipe, materials.model),
        **options,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()


def _listed(columns: Batch) -> list[dict[str, Tensor]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _of_trl(recipe: Recipe, model: nn.Module) -> tuple[Callable[..., Any], Callable[..., Any], Callable[[Batch], Any], Any]:
    """Return a trainer of TRL, its arguments, the function that makes its dataset from columns of tokens, and other inputs."""
    import datasets
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast
    from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

    datasets.disable_progress_bars()
    words = Tokenizer(WordLevel({str(word): word for word in range(WORDS)}, unk_token=str(PAD)))
    words.pre_tokenizer = WhitespaceSplit()
    special = {"pad_token": str(PAD), "bos_token": str(START), "eos_token": str(END)}
    options = {"processing_class": PreTrainedTokenizerFast(tokenizer_object=words, **special)}

    def in_words(columns: Batch) -> Any:
        texts = {name: [" " + " ".join(map(str, row)) for row in rows.tolist()] for name, rows in columns.items()}
        return datasets.Dataset.from_dict({"text" if name == "tokens" else name: rows for name, rows in texts.items()})

    plain = {"max_length": LENGTH, "gradient_checkpointing": False}
    if recipe.through == "sft":
        return SFTTrainer, partial(SFTConfig, **plain), in_words, options
    return DPOTrainer, partial(DPOConfig, **plain), in_words, options | {"ref_model": deepcopy(model)}


def _training_arguments(recipe: Recipe, materials: Materials) -> dict[str, Any]:
    return {
        "output_dir": str(materials.folder.with_name(materials.folder.name + ".out")),
        "max_steps": recipe.steps,
        "per_device_train_batch_size": recipe.batch,
        "per_device_eval_batch_size": 128,
        "gradient_accumulation_steps": recipe.accumulate,
        "learning_rate": recipe.lr,
        "weight_decay": recipe.weight_decay,
        "adam_beta1": recipe.betas[0],
        "adam_beta2": recipe.betas[1],
        "adam_epsilon": recipe.eps,
        "lr_scheduler_type": STOCK_SCHEDULES.get(recipe.schedule, "constant"),
        "warmup_steps": recipe.warmup,
        "optim": STOCK_OPTIMIZERS.get(recipe.optimizer, "adamw_torch"),
        "seed": materials.seed,
        "data_seed": None if materials.order == materials.seed else materials.order,
        "bf16": recipe.precision == "bfloat16",
        "max_grad_norm": recipe.clip or 0.0,
        "eval_strategy": "steps" if recipe.held_out else "no",
        "eval_steps": recipe.every,
        "logging_steps": recipe.every,
        "use_cpu": True,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        "dataloader_drop_last": True,
    }


STOCK_OPTIMIZERS = {"adamw": "adamw_torch", "adafactor": "adafactor", "sgd": "sgd", "rmsprop": "rmsprop", "adagrad": "adagrad"}
STOCK_SCHEDULES = {"constant": "constant_with_warmup", "cosine": "cosine", "linear": "linear"}


def _is_stock(recipe: Recipe) -> bool:
    """Tell whether the Trainer's names for optimizer and schedule are enough."""
    changed = (recipe.trained, recipe.rate, recipe.rate_of, recipe.updates)
    is_plain = changed == (None,) * 4 and recipe.horizon == 1.0
    return is_plain and recipe.optimizer in STOCK_OPTIMIZERS and recipe.schedule in STOCK_SCHEDULES


def _own_optimizer(recipe: Recipe, model: nn.Module) -> tuple[Optimizer, LRScheduler]:
    optimizer = optimizer_of(recipe, model)
    schedule = schedule_of(recipe, optimizer)
    return _patch_updates(recipe, optimizer), schedule
