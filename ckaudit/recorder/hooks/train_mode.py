"""Training mode and dropout: whether a model evaluates in training mode or trains in evaluation mode, and how much it drops."""

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
# Functions of torch.nn.functional that drop.
FUNCTION = re.compile(r"(feature_)?(alpha_)?dropout([123]d)?")
# What modules without a dropout module of their own call it: `attention_dropout`, `dropout_p`, `attn_pdrop`, `drop_path_rate`.
RATE = re.compile(r"(\w*_)?p?(layer)?drop(out|_?path)?(_(p|prob|rate|probability))?")


def differs_in_training(module: nn.Module) -> bool:
    """Return whether a module itself, its parts aside, computes something else in training mode than in evaluation mode.

    A norm that keeps no statistics takes those of the batch in both.
    """
    if isinstance(module, _NormBase):
        return bool(module.track_running_stats)
    return isinstance(module, nn.RReLU) or rate_of(module) > 0


class ModeWatch:
    """Sees in which mode a model makes its passes: those with gradients, of training, and those without, of evaluation.

    The model itself is hooked, and only where it has parts to which the mode makes a difference. A part that is called by
    itself, a copy of the model and what the recorder runs are not seen; a pass that is recomputed is no evaluation, for the
    model is entered with gradients then. A step trains in evaluation mode where all its passes with gradients do, the model as
    a whole and each of those parts: a part that is frozen alone, and a pass through the model to change its input, are meant.

    Attributes:
        handles: What takes the hook away again.

    Args:
        model: The model.
        step_state: Returns the step under way, whose line takes whether it trains in evaluation mode, and the share of its passes
            without gradients that were made in training mode. Nothing is written of a kind of pass that there is none of.
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
        # A program that is compiled after the recorder was started must not hold this.
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
        # Once more, for a rate may have been set to 0 where the mode was not changed.
        self._wrong += any(part.training and differs_in_training(part) for part in self._parts)
        step_state.values[NAME] = shorten(self._wrong / self._passes)


def batch_norm_facts(model: nn.Module) -> dict[str, Any]:
    """Return the number of batches behind batch norm's statistics when recording starts; UNSET without one that keeps them."""
    norms = [module for module in model.modules() if isinstance(module, _NormBase)]
    counts = [count for norm in norms if isinstance(count := norm.num_batches_tracked, Tensor) and not count.is_meta]
    return {"batch_norm_batches": int(max(counts)) if counts else UNSET}


# How much a model drops while it trains: the largest probability of its dropout modules, and whose it is.
def rate_of(module: nn.Module) -> float:
    """Return the probability with which a module itself drops values in training mode, its parts aside; 0: it drops none."""
    held = vars(module)
    if isinstance(module, _DropoutNd):
        rates = [held.get("p", 0.0)]
    else:
        rates = [value for name, value in held.items() if type(value) is float and RATE.fullmatch(name)]
    return max((float(rate) for rate in rates if 0 < rate <= 1), default=0.0)


def calls_dropout(module: nn.Module) -> bool:
    """Return whether the code of a module calls a function of dropout itself, with a rate that only the code holds."""
    kind = type(module)
    if kind.__module__.startswith("torch.") or not inspect.isfunction(kind.forward):
        return False
    names = inspect.unwrap(kind.forward).__code__.co_names
    return any(FUNCTION.fullmatch(name) and not hasattr(module, name) for name in names)


def dropout_facts(model: nn.Module) -> dict[str, Any]:
    """Return the largest rate of all modules, and the first module that has it, as facts of `run.json`.

    UNSET where no module has a rate, and the code of one calls a function of dropout: then nobody but the code knows.
    """
    rates = {name: rate_of(module) for name, module in model.named_modules()}
    largest = max(rates, key=rates.__getitem__)
    if not rates[largest] and any(map(calls_dropout, model.modules())):
        return {"dropout": UNSET, "dropout_module": UNSET}
    return {"dropout": rates[largest], "dropout_module": (largest or "model") if rates[largest] else UNSET}
