"""Step times: by the wall clock, by part, and without the wait for other ranks."""

from collections import deque
from statistics import median
from time import perf_counter
from typing import Any

import torch
from msgspec import Struct
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ckaudit.recorder.guard import Guard
from ckaudit.recorder.hooks.hook import Hook, after_backward
from ckaudit.recorder.hooks.vital_signs import EVERY

WINDOW = 64  # steps
SAMPLED = 8  # steps before each with vital signs whose forward pass is timed: a hook at every step would cost 1.6 us


class ExchangeWait:
    """Measures the end of every `DistributedDataParallel` backward pass: from this rank's last gradient to the end.

    Finished gradients are exchanged while the backward pass still computes. The rest of the exchange and the wait for slower
    ranks come after the last gradient. The first backward pass shows which parameter is last; the hooks on all others are then
    removed.

    Only the host's clock is read. An accelerator exchanges gradients asynchronously, so the wait is unknown there. It is also
    unknown without `DistributedDataParallel`, as with sharded tensors, whose exchanges are spread over the step.

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
        self._handles = {id(p): p.register_post_accumulate_grad_hook(self._note) for p in trainable if on_host}  # type: ignore[no-untyped-call]

    def entered(self) -> None:
        """Note that a forward pass begins, and whether `DistributedDataParallel` runs it."""
        # PyTorch keeps this for its compiler; the wrapped module does not know its wrapper.
        self._is_shared = bool(self._handles) and DistributedDataParallel._get_active_ddp_module() is not None  # type: ignore[no-untyped-call]  # noqa: SLF001

    def ended(self) -> None:
        """Note the end of the current backward pass; a second call does nothing."""
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
        """Return the seconds waited since the last call; None if they are not known."""
        waited, self._waited, self._is_waiting = self._waited, 0.0, False
        return waited if self._is_shared else None

    def close(self) -> None:
        """Remove the hooks."""
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


class StepTime(Struct, frozen=True):
    """One step by the clock of the host.

    Attributes:
        whole: From the end of the last step to the end of this one, including recording, in seconds.
        input: From the end of the last step to the start of the forward pass, in seconds; None: not measured.
        exchange: Waiting for the gradients of other ranks at the end of backward passes, in seconds; None: not known.
        passes: Number of forward passes that were seen.
    """

    whole: float
    input: float | None = None
    exchange: float | None = None
    passes: int = 0


class StepClock:
    """Measures every step from the end of the last one.

    All ranks finish a step together, however slow one of them is: the others wait for it in the exchange of gradients, and with
    sharded tensors in the forward pass too. A rank's own time is the step without the time from there to the end of the backward
    pass.

    Args:
        module: The model, which is hooked; None: it cannot be hooked, and steps are not split.
        alone: Whether there is only one rank: then the model is hooked in a few steps only.
        waits_in_forward: Whether ranks wait for each other from the start of the forward pass on, not only from its end.
        exchange: Measures the wait for gradients, if that can be separated from the backward pass.
    """

    def __init__(
        self,
        module: nn.Module | None = None,
        *,
        alone: bool = False,
        waits_in_forward: bool = False,
        exchange: ExchangeWait | None = None,
    ) -> None:
        self._module, self._alone, self._exchange = module, alone, exchange
        self._own: deque[float] = deque(maxlen=WINDOW)
        self._inputs: deque[float] = deque(maxlen=WINDOW)
        self._times: deque[StepTime] = deque(maxlen=WINDOW)
        self._latest_own, self._latest_input = 0.0, None if module is None else 0.0
        self._waits_in_forward = waits_in_forward
        self._handles: list[Any] = []
        self._ended, self._is_plain = perf_counter(), False
        self._forward_began: float | None = None
        self._forward_ended: float | None = None
        self._waited: float | None = None
        self._passes = 0
        if module is not None and not alone:
            self._handles.append(module.register_forward_pre_hook(Hook(self._entered)))
            self._handles.append(module.register_forward_hook(Hook(self._left)))

    def restart(self, step: int = 0) -> float:
        """Begin a step, after all work for the last one, and return the time, by `perf_counter`."""
        now = perf_counter()
        waited = self._exchange.take() if self._exchange else None
        if self._is_plain:
            began = self._forward_began
            self._times.append(StepTime(now - self._ended, None if began is None else began - self._ended, waited, self._passes))
        self._ended, self._is_plain = now, False
        self._forward_began = self._forward_ended = self._waited = None
        self._passes = 0
        if self._alone and self._module is not None:
            if step % EVERY >= EVERY - SAMPLED:
                self._handles = self._handles or [self._module.register_forward_pre_hook(Hook(self._entered))]
            elif self._handles:
                self._handles.pop().remove()
        return now

    def gradients_ready(self) -> None:
        """Note that the last backward pass of the step has ended."""
        if self._exchange:
            self._exchange.ended()
        since = self._forward_began if self._waits_in_forward else self._forward_ended
        if since is not None and self._waited is None:
            self._waited = perf_counter() - since

    def finish(self, now: float, recording: float, *, watched: bool) -> float:
        """End a step, and return its duration without recording, in seconds.

        Args:
            now: When the recorder was called, by `perf_counter`.
            recording: Seconds of the step that the recorder took.
            watched: Whether hooks were attached, which take longer than the recorder measures.
        """
        duration = now - self._ended - recording
        self._latest_own = duration - (self._waited or 0.0)
        if self._forward_began is not None:
            # If a trainer runs the passes inside the optimizer's step, the recorder is called before them.
            self._latest_input = min(self._forward_began - self._ended, self._latest_own)
        self._is_plain = not watched
        if not watched:
            self._own.append(self._latest_own)
            if self._latest_input is not None:
                self._inputs.append(self._latest_input)
        return duration

    def take(self) -> tuple[float, float | None]:
        """Return a step's own time and the wait before its forward pass: medians over the steps since the last call.

        At most the last 64 steps count. Steps with hooks are left out, unless there are no others.
        """
        durations, inputs = [*self._own] or [self._latest_own], [*self._inputs]
        self._own.clear()
        self._inputs.clear()
        return median(durations), median(inputs) if inputs else self._latest_input

    def take_times(self) -> list[StepTime]:
        """Return the steps without hooks since the last call, at most the last 64."""
        times = [*self._times]
        self._times.clear()
        return times

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        if self._exchange:
            self._exchange.close()

    def _entered(self, _inputs: Any) -> None:
        # A validation between two steps runs without gradients.
        if not torch.is_grad_enabled():
            return
        self._passes += 1
        if self._forward_began is None:
            self._forward_began = perf_counter()
            if self._exchange:
                self._exchange.entered()

    def _left(self, _output: Any) -> None:
        if torch.is_grad_enabled():
            self._forward_ended = perf_counter()
