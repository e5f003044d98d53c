"""A place where a model may be run without the training noticing: modes, random numbers and buffers come back as they were."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from ckaudit.recorder.hooks.hook import looking_away


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Run the body in evaluation mode; afterwards modes, buffers and the state of every random generator are as before.

    What the recorder's own hooks would see is not the training's, so they look away.

    Modes are set directly: an overridden `train` may do more, such as merging low-rank weights, which rounds them.
    """
    modes = [(module, module.training) for module in model.modules()]
    for module, _ in modes:
        module.training = False
    # Autocast keeps casts of weights: one from before the update would be read here, one from here be used by the training.
    caching = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        with _same_random_numbers(model), _same_buffers(model), looking_away():
            yield
    finally:
        torch.set_autocast_cache_enabled(caching)
        for module, mode in modes:
            module.training = mode


@contextmanager
def _same_random_numbers(model: nn.Module) -> Iterator[None]:
    own, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002  it is the training's generator
    devices = {parameter.device for parameter in model.parameters()} - {torch.device("cpu"), torch.device("meta")}
    kind = next((device.type for device in devices), "cuda")
    try:
        with torch.random.fork_rng([device.index or 0 for device in devices], device_type=kind):
            yield
    finally:
        random.setstate(own)
        np.random.set_state(numbers)  # noqa: NPY002


@contextmanager
def _same_buffers(model: nn.Module) -> Iterator[None]:
    held = [
        (module._buffers, name, buffer, None if buffer is None else (buffer._version, buffer.detach().clone()))  # noqa: SLF001
        for module in model.modules()
        for name, buffer in module._buffers.items()  # noqa: SLF001
    ]
    try:
        yield
    finally:
        for buffers, name, buffer, kept in held:
            buffers[name] = buffer
            if buffer is not None and kept is not None and buffer._version != kept[0]:  # noqa: SLF001
                with torch.no_grad():
                    buffer.copy_(kept[1])
