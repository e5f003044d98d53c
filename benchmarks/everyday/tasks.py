"""The tasks to which mistakes are made: twelve healthy trainings of usual models with usual optimizers."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn
from torch.optim import SGD, Adam, AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR

from benchmarks.everyday import models
from benchmarks.everyday.data import Sampler, blobs, curve, markov_chains, pictures, points, source, stream, topics, waves
from benchmarks.everyday.training import Training

Maker = Callable[[], Training]
TASKS: dict[str, Maker] = {}
WORDS = 48  # of the language model


def task(make: Maker) -> Maker:
    """Enter a task under the name of its function."""
    TASKS[make.__name__] = make
    return make


def _training(
    model: nn.Module, sample: Sampler, optimizer: Any, *, rows: int, steps: int, decays: bool = False, **rest: Any
) -> Training:
    """Return a training on fresh rows, eight times validated; a learning rate that decays does so along a cosine."""
    facts = {"planned_steps": steps} | rest.pop("facts", {})
    return Training(
        model=model,
        optimizer=optimizer,
        batches=stream(sample, rows, source(1)),
        held_out=sample(256, source(2)),
        steps=steps,
        every=steps // 8,
        schedule=partial(CosineAnnealingLR, T_max=steps) if decays else None,
        facts=facts,
        **rest,
    )


@task
def cnn() -> Training:
    """Convolutions with batch normalization, SGD with momentum."""
    optimizer = partial(SGD, lr=0.01, momentum=0.9, weight_decay=5e-4)
    sample = partial(pictures, classes=10, contrast=0.3)
    return _training(models.batch_norm_cnn(), sample, optimizer, rows=64, steps=300)


@task
def plain_cnn() -> Training:
    """Convolutions without normalization, Adam."""
    sample = partial(pictures, classes=10, contrast=0.3)
    return _training(models.plain_cnn(), sample, partial(Adam, lr=1e-3), rows=64, steps=300)


@task
def resnet() -> Training:
    """A ResNet, SGD with momentum and a cosine."""
    optimizer = partial(SGD, lr=0.05, momentum=0.9, weight_decay=5e-4)
    return _training(models.ResNet(), pictures, optimizer, rows=64, steps=200, decays=True)


@task
def vit() -> Training:
    """A vision transformer, AdamW with a cosine."""
    return _training(models.Vit(), pictures, partial(AdamW, lr=1e-3), rows=32, steps=300, decays=True)


@task
def gpt() -> Training:
    """A language model, AdamW with a cosine."""
    sample = partial(markov_chains, words=WORDS)
    rest = {"criterion": models.TokenCrossEntropy(), "facts": {"vocabulary": WORDS}}
    return _training(models.Gpt(WORDS), sample, partial(AdamW, lr=2e-3), rows=16, steps=300, decays=True, **rest)


@task
def gru() -> Training:
    """A text classifier of a GRU, Adam with a cosine."""
    return _training(models.TextClassifier(), topics, partial(Adam, lr=2e-3), rows=32, steps=300, decays=True)


@task
def lstm() -> Training:
    """An LSTM that tells frequencies apart, Adam with a cosine and clipped gradients."""
    model = models.Lstm(3, averages=True)
    return _training(model, waves, partial(Adam, lr=3e-3), rows=32, steps=400, clip=1.0, decays=True)


@task
def mlp() -> Training:
    """Three linear layers, Adam."""
    sample = partial(blobs, apart=0.9)
    return _training(models.mlp(20, 64, 64, 5), sample, partial(Adam, lr=1e-3), rows=64, steps=500)


@task
def mlp_sgd() -> Training:
    """The same, plain SGD."""
    sample = partial(blobs, apart=0.9)
    return _training(models.mlp(20, 64, 64, 5), sample, partial(SGD, lr=0.1), rows=64, steps=500)


@task
def tabular() -> Training:
    """Two layers with dropout and two without, AdamW with a cosine."""
    encoder = nn.Sequential(nn.Linear(24, 96), nn.ReLU(), nn.Dropout(0.1), nn.Linear(96, 96), nn.ReLU())
    model = models.EncoderDecoder(encoder, models.mlp(96, 48, 6))
    sample = partial(blobs, features=24, classes=6, apart=0.8)
    return _training(model, sample, partial(AdamW, lr=1e-3), rows=64, steps=600, decays=True)


@task
def regression() -> Training:
    """Three linear layers with tanh and a squared error, Adam."""
    model = models.mlp(8, 64, 64, 1, act=nn.Tanh)
    return _training(model, curve, partial(Adam, lr=1e-3), rows=64, steps=500, criterion=nn.MSELoss())


@task
def autoencoder() -> Training:
    """An autoencoder with six numbers in its middle, Adam."""
    model = models.EncoderDecoder(models.mlp(20, 64, 6), models.mlp(6, 64, 20))
    return _training(model, points, partial(Adam, lr=2e-3), rows=64, steps=500, criterion=nn.MSELoss())
