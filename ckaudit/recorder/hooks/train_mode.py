"""Training mode and dropout: evaluation in training mode, training in evaluation mode, and the dropout rate."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import torch
from msgspec import UNSET
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from ckaudit.recorder.guard import Guard
from ckaudit.recorder.hooks.hook import Hook
from ckaudit.recorder.loop.step_state import StepState
from ckaudit.recorder.stats.float32_rounding import shorten

NAME, TRAINING_NAME = "eval_in_training_mode", "train_in_eval_mode"
# Dropout functions of torch.nn.functional.
FUNCTION = re.compile(r"(feature_)?(alpha_)?dropout([123]d)?")
# Attributes with the rate in modules that call dropout as a function: `attention_dropout`, `dropout_p`, `attn_pdrop`,
# `drop_path_rate`.
RATE = re.compile(r"(\w*_)?p?(layer)?drop(out|_?path)?(_(p|prob|rate|probability))?")


def differs_in_training(module: nn.Module) -> bool:
    """Return whether a module itself, without its children, computes something else in training mode than in evaluation mode.

    A norm without running statistics uses those of the batch in both modes.
    """
    if isinstance(module, _NormBase):
        return bool(module.track_running_stats)
    return isinstance(module, nn.RReLU) or rate_of(module) > 0


class ModeWatch:
    """Watches the mode of a model's passes: those with gradients are training, those without are evaluation.

    The model itself is hooked, only if it has submodules that depend on the mode. Calls of a submodule, of a copy of the model
    and of the recorder are not seen. A recomputed pass is not an evaluation, because the model is called with gradients then. A
    step trains in evaluation mode if in all its passes with gradients the model and each of those submodules are in evaluation
    mode. Evaluation mode of some submodules, or of some of the passes, is taken as intended.

    Attributes:
        handles: Handles that remove the hook.

    Args:
        model: The model.
        step_state: Returns the current step. Its log line gets whether it trains in evaluation mode, and the share of its passes
            without gradients that ran in training mode. A value without such passes is absent.
        guard: Keeps failures away from the pass.
        hookable: Whether the model may be hooked.
    """

    def __init__(self, model: nn.Module, step_state: Callable[[], StepState], guard: Guard, *, hookable: bool) -> None:
        self._model, self._step_state, self._guard = model, step_state, guard
        self._parts = [module for module in model.modules() if differs_in_training(module)] if hookable else []
        self._latest: StepState | None = None
        self._passes = self._wrong = 0
        self.handles = [model.register_forward_pre_hook(Hook(self._enter))] if self._parts else []

    def _enter(self, _inputs: Any) -> None:
        # A program compiled after the recorder's start must not contain this.
        if torch.compiler.is_compiling():
            return
        with self._guard("looking at the mode of a pass"):
            if torch.is_grad_enabled():
                self._see_training(self._step_state().values)
            else:
                self._see_evaluation(self._step_state())

    def _see_training(self, values: dict[str, Any]) -> None:
        is_wrong = not (self._model.training or any(part.training for part in self._parts))
        values[TRAINING_NAME] = float(is_wrong and values.get(TRAINING_NAME, 1.0))

    def _see_evaluation(self, step_state: StepState) -> None:
        if step_state is not self._latest:
            self._latest, self._passes, self._wrong = step_state, 0, 0
        self._passes += 1
        # Checked again, because a rate may be set to 0 without a change of mode.
        self._wrong += any(part.training and differs_in_training(part) for part in self._parts)
        step_state.values[NAME] = shorten(self._wrong / self._passes)


def batch_norm_facts(model: nn.Module) -> dict[str, Any]:
    """Return the number of batches in the batch norm statistics when recording starts; UNSET without such statistics."""
    norms = [module for module in model.modules() if isinstance(module, _NormBase)]
    counts = [count for norm in norms if isinstance(count := norm.num_batches_tracked, Tensor) and not count.is_meta]
    return {"batch_norm_batches": int(max(counts)) if counts else UNSET}


# The largest dropout rate of a model's modules in training, and the module that has it.
def rate_of(module: nn.Module) -> float:
    """Return the dropout rate of a module itself in training mode, without its children; 0: no dropout."""
    held = vars(module)
    if isinstance(module, _DropoutNd):
        rates = [held.get("p", 0.0)]
    else:
        rates = [value for name, value in held.items() if type(value) is float and RATE.fullmatch(name)]
    return max((float(rate) for rate in rates if 0 < rate <= 1), default=0.0)


def calls_dropout(module: nn.Module) -> bool:
    """Return whether a module's code calls a dropout function with a rate that no attribute holds."""
    kind = type(module)
    if kind.__module__.startswith("torch.") or not inspect.isfunction(kind.forward):
        return False
    names = inspect.unwrap(kind.forward).__code__.co_names
    return any(FUNCTION.fullmatch(name) and not hasattr(module, name) for name in names)


def dropout_facts(model: nn.Module) -> dict[str, Any]:
    """Return the largest rate of all modules, and the first module that has it, as facts of `run.json`.

    UNSET if no module has a rate but the code of one calls a dropout function: then the rate is unknown.
    """
    rates = {name: rate_of(module) for name, module in model.named_modules()}
    largest = max(rates, key=rates.__getitem__)
    if not rates[largest] and any(map(calls_dropout, model.modules())):
        return {"dropout": UNSET, "dropout_module": UNSET}
    return {"dropout": rates[largest], "dropout_module": (largest or "model") if rates[largest] else UNSET}
