"""Trainings that begin with trained weights: thawed, frozen, with adapters, or as somebody's teacher."""

from functools import partial
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  its usual name
from torch.optim import Adam, AdamW
from torch.optim.lr_scheduler import LinearLR

from benchmarks.everyday.data import Batch, blobs, epochs, source
from benchmarks.everyday.healthy import healthy, on_blobs, on_table
from benchmarks.everyday.models import mlp
from benchmarks.everyday.training import Training


def pretrained(width: int = 64) -> nn.Sequential:
    """Return a classifier that has been trained on points around the centres of five classes."""
    model = mlp(20, width, width, 5)
    optimizer = Adam(model.parameters(), lr=2e-3)
    for inputs, labels in islice(epochs(blobs(4_000, source(11)), 64, source(12)), 300):
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return model


def _freeze(module: nn.Module) -> None:
    for parameter in module.parameters():
        parameter.requires_grad_(False)


@healthy
def frozen_trunk() -> Training:
    """A new head on frozen trained layers."""
    model = pretrained()
    _freeze(model)
    model[-1] = nn.Linear(64, 3)
    data = blobs(1_800, source(1), classes=3, task=7)
    return on_table(model, data, partial(Adam, lr=1e-3), held_out=300, steps=300)


@healthy
def fine_tuned() -> Training:
    """All weights of a trained model on noisier rows, with a low learning rate that falls to 0."""
    data = blobs(1_800, source(1), noise=1.3)
    schedule = partial(LinearLR, start_factor=1.0, end_factor=0.0, total_iters=300)
    return on_table(pretrained(), data, partial(AdamW, lr=5e-5), held_out=300, steps=300, schedule=schedule)


class LowRank(nn.Module):
    """A frozen linear layer, and the product of two small matrices that is added to it."""

    def __init__(self, base: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Parameter(0.1 * torch.randn(rank, base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))
        _freeze(base)

    def forward(self, x: Tensor) -> Tensor:
        """Map features (B, D) to features (B, E)."""
        return self.base(x) + x @ self.down.T @ self.up.T


@healthy
def low_rank_adapters() -> Training:
    """LoRA: low-rank matrices beside the frozen layers of a trained model."""
    layers = (LowRank(layer) if isinstance(layer, nn.Linear) else layer for layer in pretrained(128))
    inputs, labels = blobs(2_300, source(1), noise=1.5)
    return on_table(nn.Sequential(*layers), (inputs + 0.5, labels), partial(AdamW, lr=1e-3), held_out=300, steps=300)


@healthy
def thawed_later() -> Training:
    """The first layer is frozen for the first half."""
    model = mlp(20, 64, 64, 5)
    _freeze(model[0])

    def begin(step: int) -> None:
        if step == 200:
            for parameter in model[0].parameters():
                parameter.requires_grad_(True)

    return on_blobs(partial(Adam, lr=1e-3), model=model, steps=400, parameters=list(model.parameters()), begin=begin)


@healthy
def distillation() -> Training:
    """A small model learns the classes and what a larger one thinks of them."""
    teacher, student = pretrained(128), mlp(20, 16, 16, 5)

    def loss(batch: Batch) -> Tensor:
        with torch.no_grad():
            wanted = F.softmax(teacher(batch[0]) / 2, 1)
        logits = student(batch[0])
        soft = F.kl_div(F.log_softmax(logits / 2, 1), wanted, reduction="batchmean")
        return 0.5 * F.cross_entropy(logits, batch[1]) + 2 * soft

    held_out = blobs(400, source(3))

    def evaluate() -> Tensor:
        return F.cross_entropy(student(held_out[0]), held_out[1])

    optimizer = partial(Adam, lr=2e-3)
    return on_blobs(optimizer, model=student, total=4_400, rows=64, steps=500, loss=loss, evaluate=evaluate)
