"""The specification of a training in the zoo: a model, rows of data, a loss, and the optimization."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  its usual name
from torch.optim import Optimizer

Batch = Mapping[str, Tensor]
Batches = Iterator[dict[str, Tensor]]
Rows = Callable[[torch.Generator, int], dict[str, Tensor]]
Loss = Callable[[Any, Batch], Tensor]
Through = Literal["loop", "transformers", "lightning", "accelerate", "sft", "dpo"]
Precision = Literal["float32", "bfloat16", "float16"]
OptimizerName = Literal[
    "adamw", "adam", "nadam", "radam", "sgd", "nesterov", "rmsprop", "adafactor", "adagrad", "lion", "muon", "schedule_free"
]
ScheduleName = Literal["constant", "cosine", "linear", "onecycle", "warmup_stable_decay", "steps"]


def own_loss(model: Any, batch: Batch) -> Tensor:
    """Return the loss that a model of transformers computes by itself."""
    loss: Tensor = model(**batch).loss
    return loss


def classified(model: Any, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
    """Return the cross entropy of classes."""
    return F.cross_entropy(model(batch["x"]).float(), batch["y"], label_smoothing=smoothing)


def mixed_up(model: Any, batch: Batch) -> Tensor:
    """Return the cross entropy of classes; in training, rows are mixed in pairs (Zhang et al. 2018, arXiv:1710.09412)."""
    if not model.training:
        return classified(model, batch)
    share = float(torch.distributions.Beta(0.2, 0.2).sample())
    other = torch.randperm(len(batch["y"]))
    logits = model(torch.lerp(batch["x"][other], batch["x"], share)).float()
    return share * F.cross_entropy(logits, batch["y"]) + (1 - share) * F.cross_entropy(logits, batch["y"][other])


def squared(model: Any, batch: Batch) -> Tensor:
    """Return the mean squared error."""
    return F.mse_loss(model(batch["x"]).float(), batch["y"])


class Resume(Struct, frozen=True):
    """A training that is stopped after a step and resumed by a new process.

    Attributes:
        after: Last step of the first session.
        optimizer: Whether the optimizer's state is restored.
        data: Whether the data continues instead of starting over.
        rate: The learning rate afterwards, as a multiple of the planned one.
    """

    after: int
    optimizer: bool = True
    data: bool = True
    rate: float = 1.0


class Opponent(Struct, frozen=True):
    """A second player with its own loss and optimizer, which takes its step before the model: a discriminator.

    Attributes:
        loss: Its loss of a batch.
        part: The part of the model that only it trains.
    """

    loss: Loss
    part: str


class Recipe(Struct, frozen=True, kw_only=True):
    """One training.

    Attributes:
        model: Builds the model; the seed is set before.
        rows: Makes a given number of rows, as columns; the first axis of each column's tensor is the row.
        through: The trainer: a loop with the plain `Recorder`, the Trainer of transformers, Lightning, a loop of Accelerate, or
            the trainers of TRL for instructions (SFT) and for preferences (DPO).
        loss: Loss of a batch; the Trainer uses the model's own.
        optimizer: Name of the optimizer.
        lr: Peak learning rate.
        momentum: Momentum of SGD and RMSprop.
        weight_decay: Weight decay of the optimizer.
        betas: Betas of Adam and similar optimizers.
        eps: Adam's epsilon.
        schedule: Course of the learning rate.
        horizon: End of the schedule, as a share of the steps.
        warmup: Steps of linear warmup.
        clip: Maximum gradient norm, or None.
        clip_value: Maximum element of a gradient, or None; only a plain loop clips by value.
        batch: Rows of a micro-batch.
        accumulate: Micro-batches of a step.
        train: Rows to train on.
        held_out: Rows to validate on; 0: no validation.
        steps: Steps of the training.
        every: Steps from one validation to the next.
        precision: Dtype of the forward pass, under autocast; float16 with a `GradScaler`, only in a plain loop.
        scale_grows: Good steps after which the `GradScaler` doubles its scale.
        facts: Facts that the user passes to the recorder.
        trained: Whether the optimizer gets a parameter, by its name.
        rate: Multiple of the planned learning rate at a step.
        rate_of: Multiple of the learning rate of a parameter, by its name.
        gradients: Called after the backward pass of a step.
        updates: Whether the optimizer's step of a step is taken.
        feed: Changes the batches before the loop gets them.
        shuffled: Whether rows are shuffled; only a plain loop can forget it.
        names_held_out: Whether the loop declares the held-out rows to the recorder.
        opponent: A second player, if there is one: only a plain loop trains two.
        long: Whether a step is cheap enough to train thousands of them.
        zeroes: Whether gradients are cleared after a step; only a plain loop can forget it.
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
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    schedule: ScheduleName = "constant"
    horizon: float = 1.0
    warmup: int = 0
    clip: float | None = None
    clip_value: float | None = None
    batch: int = 16
    accumulate: int = 1
    train: int = 2048
    held_out: int = 128
    steps: int = 200
    every: int = 20
    precision: Precision = "float32"
    scale_grows: int = 2_000
    facts: Mapping[str, Any] = {}
    trained: Callable[[str], bool] | None = None
    rate: Callable[[int], float] | None = None
    rate_of: Callable[[str], float] | None = None
    gradients: Callable[[nn.Module, Optimizer, int], None] | None = None
    updates: Callable[[int], bool] | None = None
    feed: Callable[[Batches], Batches] | None = None
    shuffled: bool = True
    names_held_out: bool = False
    opponent: Opponent | None = None
    long: bool = False
    zeroes: bool = True
    eval_mode: bool = True
    resume: Resume | None = None


def batches(rows: Batch, size: int, seed: int, *, shuffled: bool = True) -> Batches:
    """Yield batches, one epoch after the other, endlessly."""
    count, source = len(next(iter(rows.values()))), torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(count, generator=source) if shuffled else torch.arange(count)
        for start in range(0, count - min(size, count) + 1, size):
            yield {name: column[order[start : start + size]] for name, column in rows.items()}


def pretrained(model: nn.Module, rows: Batch, loss: Loss, *, steps: int = 80, lr: float = 2e-3, batch: int = 32) -> Any:
    """Return a frozen model that has been trained on rows for a few steps."""
    optimizer, source = torch.optim.AdamW(model.parameters(), lr=lr), batches(rows, batch, 5)
    for _ in range(steps):
        loss(model, next(source)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.requires_grad_(requires_grad=False)
