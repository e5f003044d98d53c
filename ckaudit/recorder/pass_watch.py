"""Watches a model from outside, for trainers that do not show their batch, their loss or the end of the backward pass."""

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ckaudit.contract.schema.tensor_names import depth_of
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.hooks.hook import Hook


class Pass(Struct, frozen=True):
    """One forward pass that a backward pass went through.

    Attributes:
        inputs: Keyword arguments of the model.
        loss: The loss that the model put out.
        factor: Derivative of what was differentiated by that loss: what the trainer multiplied it by, loss scale included.
    """

    inputs: Mapping[str, Any]
    loss: Tensor
    factor: Tensor


class PassWatch:
    """Sees the forward and backward passes of a model that takes keywords and puts out its loss, as in `transformers`.

    A forward pass counts once the backward pass reaches its loss: evaluation and generation leave nothing behind. The end
    of a backward pass is told by autograd itself, after all gradients are there, those of other ranks included.

    Args:
        model: The model.
        guard: Keeps failures away from both passes.
        at_end: Called at the end of each backward pass.
        hooks: Whether the model may be hooked; without, only the end of a backward pass is seen, from a parameter.
    """

    def __init__(self, model: nn.Module, guard: Guard, at_end: Callable[[], None], *, hooks: bool = True) -> None:
        self._guard, self._at_end = guard, at_end
        self._inputs: Mapping[str, Any] = {}
        self._passes: list[Pass] = []
        self._is_waiting = False
        self._handles: list[RemovableHandle] = []
        # Outside the blocks: those may run a backward pass of their own, inside the large one, where they recompute.
        trainable = [(depth_of(name) is not None, p) for name, p in model.named_parameters() if p.requires_grad]
        for _, parameter in sorted(trainable, key=itemgetter(0))[:1]:
            self._handles.append(parameter.register_post_accumulate_grad_hook(self._expect_end))  # type: ignore[no-untyped-call]
        if hooks:
            self._handles.append(model.register_forward_pre_hook(Hook(self._enter), with_kwargs=True))
            self._handles.append(model.register_forward_hook(Hook(self._leave)))

    def take(self) -> list[Pass]:
        """Return the passes since the last call."""
        taken, self._passes = self._passes, []
        self._is_waiting = False
        return taken

    def close(self) -> None:
        """Stop watching."""
        for handle in self._handles:
            handle.remove()

    def _enter(self, keywords: Mapping[str, Any]) -> None:
        self._inputs = keywords if torch.is_grad_enabled() else {}

    def _leave(self, output: Any) -> None:
        inputs, self._inputs = self._inputs, {}
        with self._guard("watching the forward pass"):
            loss, logits = _loss_and_logits(output)
            if loss is not None and loss.requires_grad:
                loss.register_hook(self._reaching(inputs, loss.detach()))  # type: ignore[no-untyped-call]
            if logits is not None and logits.requires_grad:
                logits.register_hook(self._expect_end)  # type: ignore[no-untyped-call]

    def _reaching(self, inputs: Mapping[str, Any], loss: Tensor) -> Callable[[Tensor], None]:
        # The closure holds no tensor with a graph: that would be a circle, and memory that is freed late.
        def reach(factor: Tensor) -> None:
            with self._guard("watching the backward pass"):
                self._passes.append(Pass(inputs, loss, factor.detach().clone()))
            self._expect_end(factor)

        return reach

    def _expect_end(self, _tensor: Tensor) -> None:
        with self._guard("waiting for the backward pass"):
            if not self._is_waiting:
                after_backward(self._ended)
                self._is_waiting = True

    def _ended(self) -> None:
        self._is_waiting = False
        with self._guard("reading gradients"):
            self._at_end()


def after_backward(call: Callable[[], None]) -> None:
    """Have `call` called once the backward pass under way has ended, after what a data-parallel wrapper does then."""
    # PyTorch's own data-parallel wrappers use this; there is no public name. They have asked to be called at the end too, to
    # average and to wait: what is queued from there comes after them.
    queue = torch.autograd.Variable._execution_engine.queue_callback  # noqa: SLF001
    queue(lambda: queue(call))


def _loss_and_logits(output: Any) -> tuple[Tensor | None, Tensor | None]:
    if hasattr(output, "get"):
        found = output.get("loss"), output.get("logits")
    else:
        found = (*output, None, None)[:2] if isinstance(output, tuple | list) else (output, None)
    loss, logits = (value if isinstance(value, Tensor) else None for value in found)
    return (loss, logits) if loss is not None and loss.ndim == 0 else (None, logits if loss is None else loss)
