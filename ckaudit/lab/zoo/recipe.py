"""What a training of the zoo is made of: a model, rows of data, a loss, and how it is optimized."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  its usual name
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

Batch = Mapping[str, Tensor]
Batches = Iterator[dict[str, Tensor]]
Rows = Callable[[torch.Generator, int], dict[str, Tensor]]
Loss = Callable[[Any, Batch], Tensor]
Through = Literal["loop", "transformers", "lightning", "accelerate"]
OptimizerName = Literal["adamw", "adam", "nadam", "radam", "sgd", "nesterov", "rmsprop", "adafactor", "adagrad", "lion"]
ScheduleName = Literal["constant", "cosine", "linear", "onecycle", "warmup_stable_decay", "steps"]


def own_loss(model: Any, batch: Batch) -> Tensor:
    """Return the loss that a model of transformers computes by itself."""
    loss: Tensor = model(**batch).loss
    return loss


def classified(model: Any, batch: Batch) -> Tensor:
    """Return the cross entropy of classes."""
    return F.cross_entropy(model(batch["x"]).float(), batch["y"])


def squared(model: Any, batch: Batch) -> Tensor:
    """Return the mean squared error."""
    return F.mse_loss(model(batch["x"]).float(), batch["y"])


class Resume(Struct, frozen=True):
    """A training that is stopped after a step and taken up by a new process.

    Attributes:
        after: Last step of the first session.
        optimizer: Whether the optimizer's state is restored.
        data: Whether the data goes on where it was, instead of from its start.
        rate: The learning rate afterwards, as a multiple of the planned one.
    """

    after: int
    optimizer: bool = True
    data: bool = True
    rate: float = 1.0


class Recipe(Struct, frozen=True, kw_only=True):
    """One training.

    Attributes:
        model: Makes the model; the seed is set before.
        rows: Makes so many rows of data, column by column; the tensors of a column are one per row, along the first axis.
        through: Who trains: a loop with the plain `Recorder`, the Trainer of transformers, Lightning, or a loop of Accelerate.
        loss: Loss of a batch; the Trainer takes the model's own.
        optimizer: Word for the optimizer.
        lr: Peak learning rate.
        momentum: Of SGD and RMSprop.
        weight_decay: As the optimizer takes it.
        eps: Adam's epsilon.
        schedule: Course of the learning rate.
        horizon: Where the schedule ends, as a share of the steps.
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
        trained: Whether a parameter, by its name, is handed to the optimizer.
        rate: Multiple of the planned learning rate at a step.
        gradients: Steps in after the backward pass of a step.
        updates: Whether the optimizer's step of a step is taken.
        feed: Changes the batches on their way to the loop.
        zeroes: Whether gradients are zeroed after a step; only a plain loop can forget it.
        eval_mode: Whether the model is put into evaluation mode for a validation.
        resume: How the training is interrupted, if it is.
    """

    model: Callable[[], nn.Module]
    rows: Rows
    through: Through = "loop"
    loss: Loss = own_loss
    optimizer: OptimizerName = "adamw"
    lr: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0
    eps: float = 1e-8
    schedule: ScheduleName = "constant"
    horizon: float = 1.0
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
    trained: Callable[[str], bool] | None = None
    rate: Callable[[int], float] | None = None
    gradients: Callable[[nn.Module, Optimizer, int], None] | None = None
    updates: Callable[[int], bool] | None = None
    feed: Callable[[Batches], Batches] | None = None
    zeroes: bool = True
    eval_mode: bool = True
    resume: Resume | None = None


class Lion(Optimizer):
    """The sign of an average of gradients as the update (Chen et al. 2023, https://arxiv.org/abs/2302.06675)."""

    def __init__(self, params: Iterable[Tensor], *, lr: float, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.99), "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Take a step."""
        for group in self.param_groups:
            mixed, kept = group["betas"]
            for weight in (weight for weight in group["params"] if weight.grad is not None):
                average = self.state[weight].setdefault("exp_avg", torch.zeros_like(weight))
                update = average.lerp(weight.grad, 1 - mixed).sign_()
                weight.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-group["lr"])
                average.lerp_(weight.grad, 1 - kept)
        return closure() if closure else None


def optimizer_of(recipe: Recipe, model: nn.Module) -> Optimizer:
    """Return the optimizer of the parameters that are to be trained."""
    chosen = [
        parameter
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and (recipe.trained is None or recipe.trained(name))
    ]
    adam = {"eps": recipe.eps}
    momentum = {"momentum": recipe.momentum}
    kinds: dict[OptimizerName, tuple[Callable[..., Optimizer], dict[str, Any]]] = {
        "adamw": (torch.optim.AdamW, adam),
        "adam": (torch.optim.Adam, adam),
        "nadam": (torch.optim.NAdam, adam),
        "radam": (torch.optim.RAdam, adam),
        "sgd": (torch.optim.SGD, momentum),
        "nesterov": (torch.optim.SGD, momentum | {"nesterov": True}),
        "rmsprop": (torch.optim.RMSprop, momentum),
        "adagrad": (torch.optim.Adagrad, {}),
        "lion": (Lion, {}),
    }
    if recipe.optimizer == "adafactor":  # torch's own takes a rate that is relative to the weights, this one the usual kind
        from transformers import Adafactor

        return Adafactor(chosen, lr=recipe.lr, weight_decay=recipe.weight_decay, scale_parameter=False, relative_step=False)
    make, options = kinds[recipe.optimizer]
    return make(chosen, lr=recipe.lr, weight_decay=recipe.weight_decay, **options)


def schedule_of(recipe: Recipe, optimizer: Optimizer) -> LambdaLR:
    """Return the course of the learning rate, a step at a time."""
    end = max(1, round(recipe.horizon * recipe.steps))

    def factor(step: int) -> float:
        sudden = recipe.rate(step + 1) if recipe.rate else 1.0
        return sudden * _share_of_peak(recipe.schedule, step, end, recipe.warmup)

    return LambdaLR(optimizer, factor)


def _share_of_peak(schedule: ScheduleName, step: int, end: int, warmup: int) -> float:
    if schedule == "onecycle":
        peak = 0.3 * end
        if step < peak:
            return 0.04 + 0.96 * (1 - math.cos(math.pi * step / peak)) / 2
        return 1e-5 + (1 + math.cos(math.pi * min(1.0, (step - peak) / (end - peak)))) / 2
    if step < warmup:
        return (step + 1) / (warmup + 1)
    part = min(1.0, (step - warmup) / max(1, end - warmup))
    return {
        "constant": 1.0,
        "cosine": (1 + math.cos(math.pi * part)) / 2,
        "linear": 1 - part,
        "steps": 0.1 ** (int(part >= 0.5) + int(part >= 0.8)),
        "warmup_stable_decay": min(1.0, (1 - part) / 0.2),
    }[schedule]


def batches(rows: Batch, size: int, seed: int) -> Batches:
    """Yield shuffled batches, one epoch after the other, without an end."""
    count, source = len(next(iter(rows.values()))), torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(count, generator=source)
        for start in range(0, count - min(size, count) + 1, size):
            yield {name: column[order[start : start + size]] for name, column in rows.items()}
