"""How long ranks wait for each other's gradients at the end of a backward pass."""

from time import perf_counter
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ckaudit.recorder.guard import Guard
from ckaudit.recorder.pass_watch import after_backward


class ExchangeWait:
    """Measures the end of every backward pass of `DistributedDataParallel`: from the last gradient of this rank to the end.

    While a backward pass computes, gradients that are finished are exchanged already; what is left of the exchange, and the
    wait for slower ranks, comes after the last of them. Which one is last is learnt from the first backward pass; the hooks on
    all others are then taken away.

    Only the host's clock is read. An accelerator exchanges gradients while the host goes on, so that nothing is known there;
    nor where no `DistributedDataParallel` runs the model, as with sharded tensors, whose exchanges are spread over the step.

    Args:
        model: The model inside its wrappers.
        guard: Keeps failures away from the backward pass.
    """

    def __init__(self, model: nn.Module, guard: Guard) -> None:
        self._guard = guard
        self._waited, self._latest_at = 0.0, 0.0
        self._latest: Any = None
        self._is_shared = self._is_waiting = self._has_learnt = False
        trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
        on_host = all(parameter.device.type == "cpu" for parameter in trainable)
        self._handles = {id(each): each.register_post_accumulate_grad_hook(self._note) for each in trainable if on_host}  # type: ignore[no-untyped-call]

    def entered(self) -> None:
        """Note that a forward pass begins, and who runs it."""
        # PyTorch keeps this for its compiler; the wrapped module does not know its wrapper.
        self._is_shared = bool(self._handles) and DistributedDataParallel._get_active_ddp_module() is not None  # type: ignore[no-untyped-call]  # noqa: SLF001

    def ended(self) -> None:
        """Note that the backward pass under way has ended; a second time says nothing."""
        if not self._is_waiting:
            return
        self._is_waiting = False
        self._waited += perf_counter() - self._latest_at
        if self._has_learnt:
            return
        self._has_learnt = True
        for key in [key for key in self._handles if key != id(self._latest)]:
            self._handles.pop(key).remove()

    def take(self) -> float | None:
        """Return the seconds waited since the last call; None where they are not known."""
        waited, self._waited, self._is_waiting = self._waited, 0.0, False
        return waited if self._is_shared else None

    def close(self) -> None:
        """Take the hooks away."""
        for handle in self._handles.values():
            handle.remove()
        self._handles.clear()

    def _note(self, parameter: Any) -> None:
        self._latest, self._latest_at = parameter, perf_counter()
        if self._is_waiting:
            return
        with self._guard("waiting for the backward pass"):
            after_backward(self.ended)
            self._is_waiting = True
