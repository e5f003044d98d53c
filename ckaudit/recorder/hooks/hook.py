"""Hooks on modules that are not copied or pickled with a model, and a callback at the end of a backward pass."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import local
from typing import Any

import torch

_thread = local()


@contextmanager
def looking_away() -> Iterator[None]:
    """Let no hook of ours look in this thread: what runs here is not the training's."""
    before = getattr(_thread, "looks_away", False)
    _thread.looks_away = True
    try:
        yield
    finally:
        _thread.looks_away = before


def is_looking_away() -> bool:
    """Return whether what runs in this thread is none of the training's business."""
    return bool(getattr(_thread, "looks_away", False))


def is_training_pass() -> bool:
    """Return whether what runs now is a pass of the training that can be looked at: with gradients, in no transform of functions.

    Validation runs without gradients. What `torch.func.vmap` and `grad` hand to a module are wrappers: their elements are not to
    be had, and they must not be kept.
    """
    return torch.is_grad_enabled() and torch._C._functorch.peek_interpreter_stack() is None  # noqa: SLF001


class Hook:
    """A forward hook or pre-hook that calls `look` with what the module took or put out.

    A copied or pickled model gets `ignore` in its place: an average of the weights is not observed, and a saved model
    does not drag the recorder along.
    """

    def __init__(self, look: Callable[[Any], None]) -> None:
        self._look = look

    def __call__(self, _module: Any, *values: Any) -> None:
        """Look at the last value: the output of a forward hook, the inputs of a pre-hook."""
        if not is_looking_away():
            self._look(values[-1])

    def __reduce__(self) -> tuple[Callable[[], Callable[..., None]], tuple[()]]:
        return _ignoring, ()


class InputsHook(Hook):
    """A forward pre-hook with keywords that calls `look` with what the module takes, by place and by name."""

    def __call__(self, _module: Any, *values: Any) -> None:
        """Look at both: a tuple and a dictionary."""
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
