"""Hooks on modules that are not copied or pickled with a model, and a callback at the end of a backward pass."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import local
from typing import Any

import torch

_thread = local()


@contextmanager
def hooks_paused() -> Iterator[None]:
    """Pause the recorder's hooks in this thread: what runs here is not part of the training."""
    before = getattr(_thread, "paused", False)
    _thread.paused = True
    try:
        yield
    finally:
        _thread.paused = before


def are_hooks_paused() -> bool:
    """Return whether what runs in this thread is not part of the training."""
    return bool(getattr(_thread, "paused", False))


def is_training_pass() -> bool:
    """Return whether what runs now is a pass of the training that can be looked at: with gradients, in no transform of functions.

    Validation runs without gradients. What `torch.func.vmap` and `grad` hand to a module are wrappers: their elements are not to
    be had, and they must not be kept.
    """
    return torch.is_grad_enabled() and torch._C._functorch.peek_interpreter_stack() is None  # noqa: SLF001


class Hook:
    """A forward hook or pre-hook that calls `observe` with the inputs or the output of the module.

    A copied or pickled model gets `ignore` in its place: an average of the weights is not observed, and a saved model
    does not drag the recorder along.
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
        """Observe both: a tuple and a dictionary."""
        super().__call__(_module, values)


def ignore(*_values: Any) -> None:
    """Do nothing."""


def _ignoring() -> Callable[..., None]:
    return ignore


def after_backward(call: Callable[[], None]) -> None:
    """Have `call` called once the backward pass under way has ended, after what a data-parallel wrapper does then."""
    # PyTorch's own data-parallel wrappers use this; there is no public name. They have asked to be called at the end too, to
    # average and to wait: what is queued from there comes after them.
    queue = torch.autograd.Variable._execution_engine.queue_callback  # noqa: SLF001
    queue(lambda: queue(call))
