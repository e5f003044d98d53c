"""A rank's own gradient before those of other ranks are averaged in, and their mean after it."""

from collections.abc import Iterable
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor, nn

from ckaudit.recorder.checks.noise_scale import MOST, common_stride
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.pass_watch import after_backward
from ckaudit.recorder.stats.arrays import flat


class Pair(Struct, frozen=True):
    """Squared norms of one update's gradients.

    Attributes:
        own: Of this rank's gradient.
        mean: Of the mean over all ranks.
    """

    own: float
    mean: float


class RankNoise:
    """Looks at every gradient twice in one step: when autograd has accumulated it, and when the backward pass has ended.

    Autograd calls the hooks of a parameter before `DistributedDataParallel` takes the gradient to average it, and ends the
    backward pass after all averages are there. Nothing is exchanged beyond that: one rank's gradient is an unbiased sample
    of what a batch of its size gives, so that the others need not be asked. Of several backward passes the last counts.

    Args:
        parameters: The parameters; hooked from `watch` to `take`.
        guard: Keeps failures away from the backward pass.
        most: Elements looked at; of more, every k-th, which counts k times.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], guard: Guard, *, max_elements: int = MOST) -> None:
        self._parameters = {id(parameter): parameter for parameter in parameters if parameter.requires_grad}
        self._stride = common_stride(self._parameters.values(), max_elements)
        self._guard = guard
        self._own: dict[int, Tensor] = {}
        self._mean: list[Tensor] = []
        self._is_waiting = False
        self._handles: list[Any] = []

    def watch(self) -> None:
        """Look at the backward passes from now on."""
        if not self._handles:
            parameters: list[Any] = [*self._parameters.values()]  # torch gives the method no types
            self._handles = [parameter.register_post_accumulate_grad_hook(self._accumulated) for parameter in parameters]

    def take(self) -> Pair | None:
        """Stop looking, and return what was seen; None where no backward pass was, or none that averaged."""
        for handle in self._handles:
            handle.remove()
        own, mean = _sum(self._own.values()), _sum(self._mean)
        self._handles, self._own, self._mean, self._is_waiting = [], {}, [], False
        # Equal to the last bit, they were not averaged.
        return Pair(own, mean) if own is not None and mean is not None and own != mean else None

    def _accumulated(self, parameter: nn.Parameter) -> None:
        with self._guard("looking at a rank's own gradient"):
            self._own[id(parameter)] = self._square(parameter)
            if not self._is_waiting:
                after_backward(self._ended)
                self._is_waiting = True

    def _ended(self) -> None:
        self._is_waiting = False
        with self._guard("looking at the mean gradient"):
            self._mean = [self._square(self._parameters[key]) for key in self._own]

    def _square(self, parameter: nn.Parameter) -> Tensor:
        if parameter.grad is None:
            raise RuntimeError("a gradient is gone")
        values = flat(parameter.grad)[:: self._stride].double()
        square: Tensor = self._stride * values.dot(values)  # stays where it is: fetching each would make an accelerator wait
        return square


def _sum(squares: Iterable[Tensor]) -> float | None:
    found = [*squares]
    return float(torch.stack([tensor.to(found[0].device) for tensor in found]).sum()) if found else None
