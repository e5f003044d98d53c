"""Classifiers with the schedules, the precision and the regularization that users choose."""

from copy import deepcopy
from functools import partial

import torch
from torch import Tensor, nn
from torch.distributions import Beta
from torch.nn import functional as F  # noqa: N812  its usual name
from torch.optim import SGD, Adam, AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR, CosineAnnealingWarmRestarts, OneCycleLR, StepLR

from benchmarks.everyday.data import Batch, blobs, source
from benchmarks.everyday.healthy import healthy, on_blobs, on_table
from benchmarks.everyday.models import mlp
from benchmarks.everyday.training import Training


@healthy
def warm_restarts() -> Training:
    """SGD with momentum, and a cosine that starts again three times."""
    schedule = partial(CosineAnnealingWarmRestarts, T_0=200)
    return on_blobs(partial(SGD, lr=0.05, momentum=0.9), total=8_400, steps=800, schedule=schedule)


@healthy
def step_decay() -> Training:
    """SGD with Nesterov momentum, and a learning rate that is cut to a tenth twice."""
    optimizer = partial(SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)
    return on_blobs(optimizer, steps=900, schedule=partial(StepLR, step_size=300, gamma=0.1))


@healthy
def one_cycle() -> Training:
    """Linear layers with batch normalization, AdamW and one cycle."""

    def block(narrow: int) -> list[nn.Module]:
        return [nn.Linear(narrow, 128), nn.BatchNorm1d(128), nn.ReLU()]

    model = nn.Sequential(*block(20), *block(128), nn.Linear(128, 5))
    schedule = partial(OneCycleLR, max_lr=1e-2, total_steps=401)
    return on_blobs(partial(AdamW, lr=1e-2), model=model, total=4_400, rows=128, steps=400, schedule=schedule)


@healthy
def long_training() -> Training:
    """2,000 steps on noisy rows, with dropout, AdamW and a cosine."""
    data = blobs(6_800, source(1), features=30, classes=10, noise=2.2)
    model = mlp(30, 96, 96, 10, dropout=0.2)
    schedule = partial(CosineAnnealingLR, T_max=2_000)
    return on_table(model, data, partial(AdamW, lr=1e-3), held_out=800, rows=64, steps=2_000, every=200, schedule=schedule)


@healthy
def mixup() -> Training:
    """Mixup and label smoothing, validated on plain rows."""
    model = mlp(20, 128, 128, 5, act=nn.GELU, dropout=0.1)
    held_out = blobs(400, source(3))

    def loss(batch: Batch) -> Tensor:
        inputs, labels = batch
        share, other = Beta(0.4, 0.4).sample(), torch.randperm(len(inputs))
        logits = model(share * inputs + (1 - share) * inputs[other])
        mixed = [F.cross_entropy(logits, each, label_smoothing=0.1) for each in (labels, labels[other])]
        return share * mixed[0] + (1 - share) * mixed[1]

    def evaluate() -> Tensor:
        return F.cross_entropy(model(held_out[0]), held_out[1])

    optimizer = partial(AdamW, lr=2e-3, weight_decay=0.05)
    return on_blobs(optimizer, model=model, total=3_400, rows=64, steps=500, loss=loss, evaluate=evaluate)


@healthy
def bfloat16_autocast() -> Training:
    """A forward pass in bfloat16 under autocast."""
    model = mlp(20, 128, 128, 5)

    def loss(batch: Batch) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(batch[0])
        return F.cross_entropy(logits.float(), batch[1])

    return on_blobs(partial(AdamW, lr=1e-3), model=model, rows=64, steps=500, loss=loss)


@healthy
def accumulation() -> Training:
    """Gradients of four batches of 16 rows, averaged and clipped."""
    model = mlp(20, 128, 128, 5)
    return on_blobs(partial(AdamW, lr=1e-3), model=model, total=4_400, rows=16, steps=400, accumulate=4, clip=1.0)


@healthy
def averaged_weights() -> Training:
    """A validation with an exponential moving average of the weights."""
    model = mlp(20, 64, 64, 5)
    average, held_out = deepcopy(model), blobs(400, source(3))

    def updated(_step: int) -> None:
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                slow.lerp_(fast, 0.01)

    def evaluate() -> Tensor:
        return F.cross_entropy(average(held_out[0]), held_out[1])

    return on_blobs(partial(Adam, lr=1e-3), model=model, steps=400, updated=updated, evaluate=evaluate)
