"""Healthy trainings as different users write them: a function for each.

Here is what they have in common: their list, and the ways in which most of them get their data.
"""

from functools import partial
from typing import Any

from torch import nn

from benchmarks.everyday.data import Batch, Sampler, blobs, epochs, source, split, stream
from benchmarks.everyday.models import mlp
from benchmarks.everyday.tasks import Maker
from benchmarks.everyday.training import Training

HEALTHY: dict[str, Maker] = {}


def healthy(make: Maker) -> Maker:
    """Enter a healthy training under the name of its function."""
    if HEALTHY.setdefault(make.__name__, make) is not make:
        raise ValueError(f"there are two healthy trainings named {make.__name__}")
    return make


def on_table(
    model: nn.Module, data: Batch, optimizer: partial[Any], *, steps: int, rows: int = 32, held_out: int = 400, **rest: Any
) -> Training:
    """Return a training on shuffled epochs of a fixed set, of which the last rows are held out."""
    train, kept = split(data, held_out)
    batches = epochs(train, rows, source(2))
    return Training(model=model, optimizer=optimizer, steps=steps, batches=batches, held_out=kept, **rest)


def on_blobs(optimizer: partial[Any], *, steps: int, model: nn.Module | None = None, total: int = 2_400, **rest: Any) -> Training:
    """Return a training of a classifier on points around the centres of five classes."""
    return on_table(model or mlp(20, 64, 64, 5), blobs(total, source(1)), optimizer, steps=steps, **rest)


def on_stream(
    model: nn.Module, sample: Sampler, optimizer: partial[Any], *, steps: int, rows: int = 64, held_out: int = 200, **rest: Any
) -> Training:
    """Return a training on fresh rows, with a validation on others of their kind if any are held out."""
    kept = sample(held_out, source(2)) if held_out else None
    batches = stream(sample, rows, source(1))
    return Training(model=model, optimizer=optimizer, steps=steps, batches=batches, held_out=kept, **rest)


def healthy_trainings() -> dict[str, Maker]:
    """Return every healthy training by name."""
    from benchmarks.everyday.healthy import fine_tuning, games, own_losses, pictures, recipes, sequences, tables  # noqa: F401

    return dict(HEALTHY)
