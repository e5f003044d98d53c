"""Forward passes without side effects on the training: modes, random numbers and buffers are restored."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ckaudit.recorder.batch_facts import inputs_and_targets
from ckaudit.recorder.hooks.hook import hooks_paused

LossOf = Callable[[nn.Module, Any], Tensor]


@contextmanager
def no_side_effects(model: nn.Module) -> Iterator[None]:
    """Run the body in evaluation mode; then restore modes, buffers and the state of every random generator.

    The recorder's own hooks are paused, because these passes are not part of the training.

    Modes are set directly: an overridden `train` may do more, such as merging low-rank weights, which rounds them.
    """
    modes = [(module, module.training) for module in model.modules()]
    for module, _ in modes:
        module.training = False
    # Autocast caches cast weights: a cast from before the update would be read here, and one from here by the training.
    caching = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        with _same_random_numbers(model), _same_buffers(model), hooks_paused():
            yield
    finally:
        torch.set_autocast_cache_enabled(caching)
        for module, mode in modes:
            module.training = mode


@contextmanager
def _same_random_numbers(model: nn.Module) -> Iterator[None]:
    state, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002  it is the training's generator
    devices = {parameter.device for parameter in model.parameters()} - {torch.device("cpu"), torch.device("meta")}
    kind = next((device.type for device in devices), "cuda")
    try:
        with torch.random.fork_rng([device.index or 0 for device in devices], device_type=kind):
            yield
    finally:
        random.setstate(state)
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
        for buffers, name, buffer, version_and_copy in held:
            buffers[name] = buffer
            if buffer is not None and version_and_copy is not None and buffer._version != version_and_copy[0]:  # noqa: SLF001
                with torch.no_grad():
                    buffer.copy_(version_and_copy[1])


# The loss of a model on a batch from outside the training.
class OutputCapture:
    """Wrapper of a model that cannot be hooked; it passes each output to `see`.

    Args:
        model: The model.
        see: Called with each output.
    """

    def __init__(self, model: nn.Module, see: Callable[[Any], None]) -> None:
        self._model, self._see = model, see

    def __call__(self, *values: Any, **named: Any) -> Any:
        """Run the model."""
        output = self._model(*values, **named)
        self._see(output)
        return output

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def own_loss(model: nn.Module, batch: Any) -> Tensor:
    """Return the loss that a model returns itself, or the cross entropy of its logits.

    Args:
        model: Takes the keywords of a mapping and returns a `loss`; or takes inputs and returns logits (..., V).
        batch: A mapping, or a pair of inputs and targets (...).

    Raises:
        TypeError: If neither gives a loss.
    """
    if hasattr(batch, "get"):
        output = model(**batch)
        loss: Tensor | None = output.get("loss") if hasattr(output, "get") else getattr(output, "loss", None)
        if loss is None:
            raise TypeError(f"{type(model).__name__} puts out no loss: give the function that computes it")
        return loss
    inputs, targets = inputs_and_targets(batch)
    if targets is None:
        raise TypeError("a batch without targets has no loss: give the function that computes it")
    logits: Tensor = model(inputs)
    return nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def with_changed_batch(batch: Any, change: Callable[[Tensor, str | int], Tensor]) -> Any:
    """Return a batch of the same structure with every tensor replaced by `change(tensor, name or index)`."""
    if isinstance(batch, Tensor):
        return change(batch, 0)
    if isinstance(batch, tuple | list):
        return tuple(change(part, place) if isinstance(part, Tensor) else part for place, part in enumerate(batch))
    if hasattr(batch, "get"):
        return {name: change(part, name) if isinstance(part, Tensor) else part for name, part in batch.items()}
    return batch


def logits_of(output: Any) -> Tensor | None:
    """Return the logits in a model's output, shape (..., V); None if there are none."""
    if hasattr(output, "get"):
        output = output.get("logits")
    parts = output if isinstance(output, tuple | list) else (output,)
    return next((part for part in parts if isinstance(part, Tensor) and part.is_floating_point() and part.ndim >= 2), None)
