"""Mixture of experts: how a router assigns tokens to experts in a forward pass, and how evenly."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from msgspec import UNSET, Struct
from torch import Tensor, nn

from ckaudit.contract.io.codec import significant
from ckaudit.contract.schema.checkpoint import MoeStats
from ckaudit.recorder.stats.float32_rounding import shortest

CHOICES = ("top_k", "num_experts_per_tok", "experts_per_token")
CAPACITY = "expert_capacity"


class Routing(Struct, frozen=True):
    """The output of a router.

    Attributes:
        logits: Logits of every expert, (tokens, E) or (sequences, tokens, E); or the probabilities.
        chosen: The experts of each token, (..., k), if the router returns them.
        dispatched: 1 where a token is dispatched to an expert, in the shape of the logits, if the router returns it.
    """

    logits: Tensor
    chosen: Tensor | None
    dispatched: Tensor | None


def may_route(model: nn.Module, name: str) -> bool:
    """Return whether a module may be a router; a linear layer that widens belongs to a gated MLP."""
    module = model.get_submodule(name)
    if not isinstance(module, nn.Linear) or module_setting(model, name, CHOICES) or module_setting(model, name, (CAPACITY,)):
        return True
    return 1 < module.out_features < module.in_features


def module_setting(model: nn.Module, name: str, names: Iterable[str]) -> int | None:
    """Return an integer attribute of a module, or of the one around it, under one of these names; None if neither has one."""
    owners = [model.get_submodule(place) for place in (name, name.rpartition(".")[0])] if name else [model]
    values = (getattr(owner, name, None) for owner in owners for name in names)
    return next((value for value in values if isinstance(value, int) and value > 0), None)


def routing_of(output: Any) -> Routing | None:
    """Return the output of a router: logits, alone or with the chosen experts or a mask of dispatched tokens.

    The logits are the first floating-point tensor with the largest last dimension.
    """
    tensors = [x.detach() for x in (output if isinstance(output, tuple | list) else (output,)) if isinstance(x, Tensor)]
    floating = [x for x in tensors if x.is_floating_point() and x.ndim in (2, 3)]
    if not floating:
        return None
    logits = max(floating, key=lambda x: x.shape[-1])
    whole = [
        x for x in tensors if not x.is_floating_point() and x.numel() // max(x.shape[-1], 1) * logits.shape[-1] == logits.numel()
    ]
    mask = next((x for x in whole if x.shape == logits.shape), None)
    return Routing(logits, next((x for x in whole if x is not mask), None), mask)


def moe_stats(output: Any, *, choices: int | None = None, capacity: int | None = None) -> MoeStats | None:
    r"""Return how a router distributes the tokens over the experts; None if that is not known.

    `counts` are the requested assignments, before any was dropped. The load-balance loss is that of Fedus et al. (2021, equation
    4), with the share of assignments in place of that of tokens, so that an even distribution gives 1 for every number of
    choices:
    $$E \sum_i f_i P_i, \qquad f_i = \text{counts}_i / \text{routed}, \qquad P_i = \tfrac1T \sum_t \mathrm{softmax}(x_t)_i$$

    Args:
        output: The output of the router.
        choices: Experts per token, if the router does not return them.
        capacity: Maximum number of tokens per expert: per sequence if the logits have that dimension, else in all.
    """
    routing = routing_of(output)
    if routing is None:
        return None
    groups = routing.logits if routing.logits.ndim == 3 else routing.logits.unsqueeze(0)  # (G, T, E)
    experts = groups.shape[-1]
    if routing.dispatched is not None and choices is None:
        choices = 1
    if not groups.numel() or experts < 2 or (routing.chosen is None and (choices is None or choices > experts)):
        return None
    chosen = groups.topk(choices or 1, -1).indices if routing.chosen is None else routing.chosen
    counts = _counts(chosen.reshape(groups.shape[0], -1), experts)  # (G, E)
    total = counts.sum(0)
    routed = int(total.sum())
    shares = _probabilities(groups.float()).mean((0, 1))
    return MoeStats(
        counts=[float(count) for count in total.tolist()],
        routed=float(routed),
        dropped=UNSET if (dropped := _dropped(routing, counts, capacity)) is None else float(dropped),
        router_probability=significant(shares.tolist()),
        aux_loss=shortest(experts * float((total * shares).sum()) / routed) if routed else UNSET,
    )


def _probabilities(values: Tensor, *, precision: float = 1e-2) -> Tensor:
    """Return the softmax of logits; values that are already probabilities, within bfloat16 `precision`, are kept."""
    is_done = bool((values >= 0).all()) and bool(((values.sum(-1) - 1).abs() < precision).all())
    return values if is_done else values.softmax(-1)


def _counts(chosen: Tensor, experts: int) -> Tensor:
    """Return the assignments of each expert, (G, n) to (G, E); an index beyond the experts means no expert."""
    first = (experts + 1) * torch.arange(len(chosen), device=chosen.device)[:, None]
    places = (chosen.clamp(max=experts) + first).reshape(-1)
    return torch.bincount(places, minlength=len(chosen) * (experts + 1)).reshape(len(chosen), -1)[:, :experts]


def _dropped(routing: Routing, counts: Tensor, capacity: int | None) -> int | None:
    if routing.dispatched is not None:
        return int(counts.sum() - routing.dispatched.count_nonzero())
    return None if capacity is None else int((counts - capacity).clamp(min=0).sum())


def moe_scalars(layers: Mapping[str, MoeStats]) -> dict[str, float | None]:
    """Return the catalogue's values over all layers; None for a value without data.

    `moe_drop_rate` is dropped over routed in percent (M26); `moe_util_entropy` the entropy of the counts over log E, in the layer
    where it is smallest (M27); `moe_load_balance_loss` the mean over layers (M28).
    """
    counted = [layer.dropped for layer in layers.values() if isinstance(layer.dropped, float)]
    routed = sum(float(layer.routed or 0) for layer in layers.values() if layer.dropped is not UNSET)
    losses = [layer.aux_loss for layer in layers.values() if isinstance(layer.aux_loss, float)]
    return {
        "moe_drop_rate": 100 * sum(counted) / routed if routed else None,
        "moe_util_entropy": min((utilisation(layer.counts) for layer in layers.values() if layer.counts), default=None),
        "moe_load_balance_loss": sum(losses) / len(losses) if losses else None,
    }


def utilisation(counts: Iterable[Any]) -> float:
    """Return the entropy of counts over its maximum, log E: 1 if all experts get the same, 0 if one gets everything.

    It is NaN if nothing was counted.

    >>> utilisation([5.0, 5.0]), utilisation([9.0, 0.0, 0.0])
    (1.0, 0.0)
    """
    numbers = [float(count) for count in counts]
    total = sum(numbers)
    if not total:
        return math.nan
    shares = [count / total for count in numbers if count > 0]
    return -sum(share * math.log(share) for share in shares) / math.log(len(numbers)) + 0.0
