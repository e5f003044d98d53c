"""Stale gradients: those of earlier steps that were not cleared, so that this step's gradients are added to them."""

import math
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.optim import Optimizer

from ckaudit.recorder.guard import Guard
from ckaudit.recorder.stats.arrays import flat

MAX_TENSORS = 4  # tensors inspected
MAX_ELEMENTS = 2**14  # elements of each, if there are tensors that small


class StaleGradient(Struct):
    """One inspected tensor; the measurements stay on its device.

    Attributes:
        parameter: The tensor.
        optimizer: Optimizer of the tensor.
        node: The autograd node that accumulates its gradient. Hooks on it do not show on the parameter, and vanish with it.
        handle: Handle of the hook there; None: the inspection has ended.
        old: Norm of the gradient before the first backward pass of the step, or after it was last cleared.
        new: Sum of the gradients added since; None: no backward pass yet.
        is_there: Whether the gradient was in `.grad`, where the optimizer finds it.
    """

    parameter: nn.Parameter
    optimizer: Optimizer
    node: Any
    handle: Any = None
    old: Tensor | None = None
    new: Tensor | None = None
    is_there: bool = False

    def observe(self, gradient: Tensor) -> None:
        """Note the gradient that is about to be added, and the one that it is added to."""
        fresh, before = flat(gradient), self.parameter.grad
        standing = torch.zeros_like(fresh) if before is None else flat(before)
        if self.old is None or self.new is None:
            self.old, self.new = torch.linalg.vector_norm(standing), fresh.clone()
            return
        # Testing whether the gradient was cleared in between would synchronise with an accelerator.
        still_there = standing.any()
        self.old, self.new = torch.where(still_there, self.old, 0.0), torch.where(still_there, self.new, 0.0) + fresh

    def end(self) -> None:
        """Stop observing backward passes."""
        if self.handle is not None:
            self.handle.remove()
            self.handle, self.is_there = None, self.parameter.grad is not None

    def share(self) -> float | None:
        """Return old over the sum of old and new; None if nothing finite was seen."""
        if self.old is None or self.new is None or not self.is_there:
            return None
        old, new = torch.stack([self.old, torch.linalg.vector_norm(self.new)]).tolist()
        return old / (old + new) if 0 < old + new < math.inf else None


class StaleGradients:
    r"""Inspects, for one step, the content of a few gradients when the first backward pass reaches them.

    $$s = \max_p \frac{\lVert G_p^{old} \rVert}{\lVert G_p^{old} \rVert + \lVert G_p^{new} \rVert}$$

    Cleared gradients are None or zeros: the share is exactly 0, however the gradients are rounded, scaled, accumulated, clipped
    or averaged over ranks afterwards. Clearing between two passes counts as clearing.

    The share is known only if an update came before, so that nothing is left for the next update; for tensors with a known
    optimizer and a gradient in `.grad` at the end; and not for sharded tensors.

    Args:
        parameters: The parameters, in the order of the model; empty: nothing is inspected.
        optimizers: Optimizers of the parameters.
        guard: Keeps failures away from the backward pass and the update.
        max_tensors: Tensors inspected.
        largest: Elements of each; if an optimizer has no tensor that small, its smallest one is taken.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        optimizers: Sequence[Optimizer],
        guard: Guard,
        *,
        max_tensors: int = MAX_TENSORS,
        largest: int = MAX_ELEMENTS,
    ) -> None:
        self._parameters, self._optimizers, self._guard = [*parameters], optimizers, guard
        self._most, self._largest = max_tensors, largest
        self._chosen: list[tuple[nn.Parameter, Optimizer]] = []
        self._standing: list[StaleGradient] = []
        self._handles: list[Any] = []
        self._step = 0
        self.seconds = 0.0

    def watch(self, step: int) -> None:
        """Observe the backward passes up to the update, for a step that has not begun."""
        self.stop()
        self._step, self.seconds = step, 0.0
        if not self._chosen or not all(parameter.requires_grad for parameter, _ in self._chosen):
            self._chosen = [*self._choose()]
        for parameter, optimizer in self._chosen:
            standing = StaleGradient(parameter, optimizer, get_gradient_edge(parameter).node)
            self._standing.append(standing)
            standing.handle = standing.node.register_prehook(self._reaching(standing))
        for optimizer in {id(optimizer): optimizer for _, optimizer in self._chosen}.values():
            self._handles.append(optimizer.register_step_pre_hook(self._updating))

    def share(self, step: int) -> float | None:
        """Stop observing, and return the largest share among the tensors; None if it is not known for that step."""
        start, standing = perf_counter(), self.stop()
        shares = [tensor.share() for tensor in standing] if step == self._step else []
        self.seconds += perf_counter() - start
        return max((share for share in shares if share is not None), default=None)

    def stop(self) -> list[StaleGradient]:
        """Remove all hooks, and return what they saw."""
        for handle in self._handles:
            handle.remove()
        standing, self._standing, self._handles = self._standing, [], []
        for tensor in standing:
            tensor.end()
        return standing

    def _choose(self) -> Iterable[tuple[nn.Parameter, Optimizer]]:
        """Yield small trainable tensors of each optimizer, spread over the model."""
        count = max(1, self._most // max(1, len(self._optimizers)))
        for optimizer in self._optimizers[: self._most]:
            held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
            trainable = [p for p in self._parameters if id(p) in held and p.requires_grad and p.numel()]
            small = [p for p in trainable if p.numel() <= self._largest] or sorted(trainable, key=Tensor.numel)[:1]
            places = {round(part * (len(small) - 1) / max(1, count - 1)) for part in range(count)} if small else set()
            yield from ((small[place], optimizer) for place in sorted(places))

    def _reaching(self, standing: StaleGradient) -> Callable[[tuple[Tensor | None, ...]], None]:
        def reach(gradients: tuple[Tensor | None, ...]) -> None:
            start = perf_counter()
            with self._guard("looking at what a gradient is added to"), torch.no_grad():
                # Operations captured for a CUDA graph do not run now, and no hook runs when they do.
                if (gradient := gradients[0]) is not None and not (gradient.is_cuda and torch.cuda.is_current_stream_capturing()):
                    standing.observe(gradient)
            self.seconds += perf_counter() - start

        return reach

    def _updating(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        # With a closure, the backward passes run within the update. The handle of this hook must stay while torch iterates over
        # the hooks.
        with self._guard("looking before the update"):
            for standing in self._standing:
                if standing.optimizer is optimizer and standing.new is not None:
                    standing.end()
