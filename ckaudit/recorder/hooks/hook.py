"""Hooks on modules that are not copied or pickled with a model, and a callback at the end of a backward pass."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import local
from typing import Any

import torch

_thread = local()


@contextmanager
def hooks_paused() -> Iterator[None]:
    """Pause the recorder's hooks in this thread: the body is not part of the training."""
    before = getattr(_thread, "paused", False)
    _thread.paused = True
    try:
        yield
    finally:
        _thread.paused = before


def are_hooks_paused() -> bool:
    """Return whether the hooks are paused in this thread."""
    return bool(getattr(_thread, "paused", False))


def is_training_pass() -> bool:
    """Return whether a training pass that can be measured runs now: with gradients, and outside function transforms.

    Validation runs without gradients. `torch.func.vmap` and `grad` pass wrappers to a module: their elements cannot be read, and
    they must not be kept.
    """
    return torch.is_grad_enabled() and torch._C._functorch.peek_interpreter_stack() is None  # noqa: SLF001


class Hook:
    """A forward hook or pre-hook that calls `observe` with the inputs or the output of the module.

    In a copied or pickled model `ignore` replaces it: an average of the weights is not observed, and a saved model does not
    contain the recorder.
    """

    def __init__(self, observe: Callable[[Any], None]) -> None:
        self._observe = observe

    def __call__(self, _module: Any, *values: Any) -> None:
        """Observe the last value: the output of a forward hook, the inputs of a pre-hook."""
        if not are_hooks_paused():
            self._observe(values[-1])

    def __reduce__(self) -> tuple[Callable[[], Callable[..., None]], tuple[()]]:
        return _ignoring, ()


class InputsHook(Hook):
    """A forward pre-hook with keywords that calls `observe` with positional and keyword arguments of the module."""

    def __call__(self, _module: Any, *values: Any) -> None:
        """Observe a tuple of positional arguments and a dictionary of keyword arguments."""
        super().__call__(_module, values)


def ignore(*_values: Any) -> None:
    """Do nothing."""


def _ignoring() -> Callable[..., None]:
    return ignore


def after_backward(call: Callable[[], None]) -> None:
    """Call `call` once the current backward pass has ended, after the work of a data-parallel wrapper at that point."""
    # PyTorch's own data-parallel wrappers use this; there is no public name. They too queue a callback for the end, to average
    # and to wait; a callback queued from there runs after them.
    queue = torch.autograd.Variable._execution_engine.queue_callback  # noqa: SLF001
    queue(lambda: queue(call))
