"""How long steps take: by the clock on the wall, and without waiting for other ranks."""

from collections import deque
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import nn

from ckaudit.recorder.hooks import Hook

WINDOW = 64  # steps


class StepClock:
    """Measures every step from the end of the one before.

    Ranks that train together finish every step together, however slow one of them is: the others wait for it where they
    exchange gradients, and, where tensors are sharded, in the forward pass too. What a rank takes by itself is
    the step without the stretch from there to the end of the backward pass.

    Args:
        module: The model, which is hooked; None: it cannot be, or only one rank trains, and no step is split.
        waits_in_forward: Whether ranks wait for each other from the start of the forward pass on, not only from its end.
    """

    def __init__(self, module: nn.Module | None = None, *, waits_in_forward: bool = False) -> None:
        self._own: deque[float] = deque(maxlen=WINDOW)
        self._inputs: deque[float] = deque(maxlen=WINDOW)
        self._latest_own, self._latest_input = 0.0, None if module is None else 0.0
        self._waits_in_forward = waits_in_forward
        self._handles: list[Any] = []
        if module is not None:
            self._handles.append(module.register_forward_pre_hook(Hook(self._entered)))
            self._handles.append(module.register_forward_hook(Hook(self._left)))
        self.restart()

    def restart(self) -> None:
        """Begin a step."""
        self._ended = perf_counter()
        self._forward_began: float | None = None
        self._forward_ended: float | None = None
        self._waited: float | None = None

    def gradients_ready(self) -> None:
        """Note that the last backward pass of the step has ended."""
        since = self._forward_began if self._waits_in_forward else self._forward_ended
        if since is not None and self._waited is None:
            self._waited = perf_counter() - since

    def finish(self, now: float, recording: float, *, watched: bool) -> None:
        """End a step.

        Args:
            now: When the recorder was called, by `perf_counter`.
            recording: Seconds of it that the recorder itself took.
            watched: Whether hooks looked at it, which take longer than the recorder knows.
        """
        duration = now - self._ended - recording
        self._latest_own = duration - (self._waited or 0.0)
        if self._forward_began is not None:
            self._latest_input = self._forward_began - self._ended
        if watched:
            return
        self._own.append(self._latest_own)
        if self._latest_input is not None:
            self._inputs.append(self._latest_input)

    def take(self) -> tuple[float, float | None]:
        """Return what a step took by itself, and its wait for the forward pass: medians over the steps since the last call.

        Of many it is the last 64; steps that hooks looked at are left out, unless there are no others.
        """
        own, inputs = [*self._own] or [self._latest_own], [*self._inputs]
        self._own.clear()
        self._inputs.clear()
        return median(own), median(inputs) if inputs else self._latest_input

    def close(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()

    def _entered(self, _inputs: Any) -> None:
        # A validation between two steps runs without gradients.
        if self._forward_began is None and torch.is_grad_enabled():
            self._forward_began = perf_counter()

    def _left(self, _output: Any) -> None:
        if torch.is_grad_enabled():
            self._forward_ended = perf_counter()
