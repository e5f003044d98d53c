"""Whether evaluations run in training mode: passes without gradients, while a part to which the mode matters is set to train."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from ckaudit.recorder.guard import Guard
from ckaudit.recorder.hooks.hook import Hook
from ckaudit.recorder.loop.step_state import StepState
from ckaudit.recorder.stats.dropout import rate_of
from ckaudit.recorder.stats.float32_rounding import shorten

NAME = "eval_in_training_mode"


def differs_in_training(module: nn.Module) -> bool:
    """Return whether a module itself, its parts aside, computes something else in training mode than in evaluation mode.

    A norm that keeps no statistics takes those of the batch in both.
    """
    if isinstance(module, _NormBase):
        return bool(module.track_running_stats)
    return isinstance(module, nn.RReLU) or rate_of(module) > 0


class ModeWatch:
    """Sees the passes of a model that are made without gradients: evaluations, and generation.

    The model itself is hooked, and only where it has parts to which the mode makes a difference. A part that is called by
    itself, a copy of the model and what the recorder runs are not seen; a pass that is recomputed is none of its own, for
    the model is entered with gradients then.

    Attributes:
        handles: What takes the hook away again.

    Args:
        model: The model.
        attempt: Returns the step under way, whose line takes the share of its passes without gradients that were made in
            training mode. Nothing is written where there are none.
        guard: Keeps failures away from the pass.
        hookable: Whether the model may be hooked.
    """

    def __init__(self, model: nn.Module, attempt: Callable[[], StepState], guard: Guard, *, hookable: bool) -> None:
        self._attempt, self._guard = attempt, guard
        self._parts = [module for module in model.modules() if differs_in_training(module)] if hookable else []
        self._latest: StepState | None = None
        self._passes = self._wrong = 0
        self.handles = [model.register_forward_pre_hook(Hook(self._enter))] if self._parts else []

    def _enter(self, _inputs: Any) -> None:
        # A program that is compiled after the recorder was started must not hold this.
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return
        with self._guard("looking at the mode of an evaluation"):
            attempt = self._attempt()
            if attempt is not self._latest:
                self._latest, self._passes, self._wrong = attempt, 0, 0
            self._passes += 1
            # Once more, for a rate may have been set to 0 where the mode was not changed.
            self._wrong += any(part.training and differs_in_training(part) for part in self._parts)
            attempt.values[NAME] = shorten(self._wrong / self._passes)
