"""Optimizers and the loss scaler: parameter groups, state, skipped updates, and other writes to weights."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from msgspec import UNSET, Struct
from torch import Tensor, nn
from torch.optim import Optimizer

from ckaudit.contract.schema.checkpoint import OptimizerGroup, OptimizerState
from ckaudit.contract.schema.numbers import encode_float
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.model.gradient_norms import all_finite
from ckaudit.recorder.stats.arrays import dense, is_sharded
from ckaudit.recorder.stats.float32_rounding import shortest


class Clipping(Struct, frozen=True):
    """A clipping that was applied before the gradients were read.

    Attributes:
        max_norm: Maximum total norm.
        norm: Total norm before clipping, if known.
    """

    max_norm: float
    norm: float | None


def as_sequence(optimizer: Optimizer | Iterable[Optimizer] | None) -> tuple[Optimizer, ...]:
    """Return zero, one or several optimizers as a tuple, without the wrappers of Accelerate and others."""
    if optimizer is None:
        return ()
    return tuple(map(_unwrapped, optimizer if isinstance(optimizer, list | tuple) else (cast("Optimizer", optimizer),)))


def _unwrapped(optimizer: Optimizer) -> Optimizer:
    while isinstance(within := getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = within
    return optimizer


def hook_updates(
    optimizers: Sequence[Optimizer], guard: Guard, before: Callable[[Optimizer, bool], None], after: Callable[[Optimizer], None]
) -> list[Any]:
    """Call `before` and `after` around every update, guarded, and return the handles of the hooks.

    `before` gets whether the gradients exist by then: an optimizer with a closure, as in Lightning, computes them within its
    step.
    """

    def guarded_before(optimizer: Optimizer, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        closure = given[1] if len(given) > 1 else named.get("closure")
        try:
            before(optimizer, closure is None)
        except Exception as error:  # noqa: BLE001  nothing may reach the training
            guard.failed("looking before the update", error)

    def guarded_after(optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        try:
            after(optimizer)
        except Exception as error:  # noqa: BLE001
            guard.failed("looking after the update", error)

    handles: list[Any] = []
    for held in optimizers:
        with guard("listening to the optimizer"):
            handles += held.register_step_pre_hook(guarded_before), held.register_step_post_hook(guarded_after)
    return handles


def learning_rates(optimizers: Sequence[Optimizer]) -> list[float]:
    """Return the current learning rate of every group; a group without one is left out."""
    return [float(group["lr"]) for optimizer in optimizers for group in optimizer.param_groups if "lr" in group]


def optimized_parameters(optimizers: Sequence[Optimizer]) -> int:
    """Return the number of parameters that the optimizers hold."""
    return sum([len(group["params"]) for optimizer in optimizers for group in optimizer.param_groups])


def overflowed(optimizer: Optimizer) -> bool:
    """Return whether a fused optimizer was told to skip the update within its step."""
    found_inf = getattr(optimizer, "found_inf", None)
    return found_inf is not None and bool(float(found_inf) > 0)


def optimizer_state(
    optimizers: Sequence[Optimizer], parameters: Mapping[str, nn.Parameter], rates: Sequence[float], *, finite: bool | None
) -> OptimizerState:
    """Return the optimizer section: names, groups with the learning rates of this step's update, and gaps.

    An optimizer that holds none of the parameters has no gaps: it works on copies, such as sharded master weights.

    Args:
        optimizers: The optimizers.
        parameters: The model's parameters by name.
        rates: Learning rate of every group.
        finite: Whether every element of the optimizers' state is finite; None: not known.
    """
    held = {id(tensor) for group in _groups(optimizers) for tensor in group["params"]}
    missing = [name for name, tensor in parameters.items() if tensor.requires_grad and id(tensor) not in held]
    has_copies = held.isdisjoint(map(id, parameters.values()))
    groups = list(_groups(optimizers))
    padded: list[float | None] = [*rates, *[None] * len(groups)]
    epsilons = [float(group["eps"]) for group in groups if isinstance(group.get("eps"), float | int)]
    return OptimizerState(
        name="+".join(dict.fromkeys(type(optimizer).__name__ for optimizer in optimizers)),
        groups=[_group(group, rate) for group, rate in zip(groups, padded, strict=False)],
        epsilon=shortest(max(epsilons)) if epsilons else UNSET,
        trainable_without_optimizer=UNSET if has_copies else missing,
        state_finite=UNSET if finite is None else finite,
    )


def decay_shares(optimizers: Sequence[Optimizer], parameters: Mapping[str, Tensor], rates: Sequence[float]) -> dict[str, float]:
    """Return learning rate times weight decay of each parameter that an optimizer holds and decays.

    Args:
        optimizers: The optimizers.
        parameters: The model's parameters by name.
        rates: Learning rate of every group in the update; the result is empty if a group has none.
    """
    groups = list(_groups(optimizers))
    if len(groups) != len(rates):
        return {}
    shares = {
        id(tensor): rate * float(group["weight_decay"])
        for group, rate in zip(groups, rates, strict=True)
        if group.get("weight_decay")
        for tensor in group["params"]
    }
    return {name: shares[id(tensor)] for name, tensor in parameters.items() if id(tensor) in shares}


def rates_of_tensors(
    optimizers: Sequence[Optimizer], parameters: Mapping[str, Tensor], rates: Sequence[float]
) -> dict[str, float]:
    """Return the learning rate of each parameter that an optimizer holds; empty if all groups have the same.

    Args:
        optimizers: The optimizers.
        parameters: The model's parameters by name.
        rates: Learning rate of every group in the update; the result is empty if a group has none.
    """
    groups = list(_groups(optimizers))
    if len(groups) != len(rates) or len({*rates}) < 2:
        return {}
    own = {id(tensor): rate for group, rate in zip(groups, rates, strict=True) for tensor in group["params"]}
    return {name: own[id(tensor)] for name, tensor in parameters.items() if id(tensor) in own}


def norm_before_update(optimizer: Optimizer) -> Tensor | None:
    """Return the global gradient norm before an update; None if the update uses other gradients.

    A fused optimizer divides by the loss scale within its step, and shards of a gradient on other ranks are not available.
    """
    gradients = [tensor.grad for group in optimizer.param_groups for tensor in group["params"] if tensor.grad is not None]
    if not gradients or getattr(optimizer, "grad_scale", None) is not None:
        return None
    if any(gradient.layout != torch.strided or is_sharded(gradient) for gradient in gradients):
        return None
    return torch.nn.utils.get_total_norm(gradients)


def state_finite(optimizers: Sequence[Optimizer]) -> bool | None:
    """Return whether every element of every moment is finite (M12); None before there is any state."""
    values = (value for optimizer in optimizers for state in optimizer.state.values() for value in state.values())
    tensors = [value for value in values if isinstance(value, Tensor) and value.is_floating_point() and value.numel()]
    if not tensors:
        return None
    return all_finite(
        [tensor if tensor.layout == torch.strided and not is_sharded(tensor) else dense(tensor) for tensor in tensors]
    )


def clip_coefficient(clip_norm: float, norm: float) -> float:
    """Return the factor by which `torch.nn.utils.clip_grad_norm_` scales gradients of this norm, 0 to 1; NaN for a NaN norm."""
    coefficient = clip_norm / (norm + 1e-6)
    return 1.0 if coefficient > 1 else coefficient


def undone_clipping(max_norm: float, norm_now: float, norm_before: float | None, *, rounding: float = 1e-3) -> float | None:
    r"""Return the factor of a past clipping, from the current total norm; None if it is not known.

    A norm below `max_norm` was not clipped: the factor was 1. A norm equal to it was clipped, and only the norm before clipping
    gives the factor.

    Args:
        max_norm: Maximum total norm.
        norm_now: Total norm after clipping.
        norm_before: Total norm before clipping, if known.
        rounding: Relative error of `norm_now`: a bfloat16 keeps 8 bits of an element, and a sum over many averages that out.
    """
    if norm_before is not None:
        coefficient = clip_coefficient(max_norm, norm_before)
        return coefficient if coefficient > 0 else None
    return 1.0 if norm_now < max_norm * clip_coefficient(max_norm, max_norm) * (1 - rounding) else None


def _groups(optimizers: Sequence[Optimizer]) -> Iterable[dict[str, Any]]:
    return (group for optimizer in optimizers for group in optimizer.param_groups)


def _group(group: Mapping[str, Any], rate: float | None) -> OptimizerGroup:
    decay = group.get("weight_decay")
    return OptimizerGroup(
        learning_rate=UNSET if rate is None else encode_float(rate),
        weight_decay=UNSET if decay is None else shortest(float(decay)),
        tensors=len(group["params"]),
    )


# Writes to weights between two updates by anything but the optimizer.
class WeightWrites:
    """Reads torch's count of in-place changes of each weight, which costs a few microseconds a step.

    A program that constrains or swaps weights at every step or evaluation does so on purpose: only a write after `quiet` steps
    without one is reported, at most `max_reported` times per session. Changes that bypass torch, such as `.data` or a flipped
    bit, are not seen.

    Args:
        parameters: The model's parameters by name.
        optimizers: Optimizers of the parameters; a parameter without one, such as that of an EMA teacher, is ignored.
        quiet: Updates without a write before a write is reported.
        max_reported: Writes that are reported.
    """

    def __init__(
        self, parameters: Mapping[str, Tensor], optimizers: Sequence[Optimizer], *, quiet: int = 20, max_reported: int = 3
    ) -> None:
        groups = (group for optimizer in optimizers for group in optimizer.param_groups)
        held = {id(tensor) for group in groups for tensor in group["params"]}
        known = {name: tensor for name, tensor in parameters.items() if id(tensor) in held}
        self._names, self._weights = [*known], [*known.values()]
        self._quiet, self._max_reported = quiet, max_reported
        self._calm, self._reported = 0, 0
        self._versions: list[int] = []
        self._before: list[int] = []
        self._usual: list[int] = []
        self._usual_total = -1
        self._written: list[str] = []

    def before_update(self) -> bool:
        """Tell whether weights were written to since the last update, if such writes are rare."""
        self._before = self._now()
        if not self._versions or self._versions == self._before:
            self._calm += 1
            return False
        return self._is_rare(self._versions, self._before)

    def after_update(self) -> bool:
        """Tell whether an update contained additional writes to weights, as by a closure, if such writes are rare.

        An update normally writes to each weight as often as earlier ones. A weight without writes so far may have been unfrozen.
        """
        self._versions = self._now()
        total = sum(self._versions) - sum(self._before)
        if not self._before or total == self._usual_total:  # the usual case; counting by weight takes time
            return False
        counts = [after - before for before, after in zip(self._before, self._versions, strict=True)]
        usual = [highest or count for highest, count in zip(self._usual or counts, counts, strict=True)]
        highest = [*map(max, counts, usual)]
        is_rare = highest != usual and self._is_rare(usual, highest)
        self._usual = usual if is_rare else highest
        self._usual_total = sum(self._usual)
        return is_rare

    def take_names(self) -> list[str]:
        """Return the names of weights written to since the last call."""
        written, self._written = self._written, []
        return [*dict.fromkeys(written)]

    def _is_rare(self, before: Sequence[int], after: Sequence[int]) -> bool:
        """Tell whether a write comes after a quiet time, and remember the weights that changed from `before` to `after`."""
        is_rare, self._calm = self._calm >= self._quiet, 0
        self._reported += is_rare
        if not is_rare or self._reported > self._max_reported:
            return False
        rows = zip(self._names, before, after, strict=True)
        self._written += [name for name, then, now in rows if then != now]
        return True

    def _now(self) -> list[int]:
        return [weight._version for weight in self._weights]  # noqa: SLF001
