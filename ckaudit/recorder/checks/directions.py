"""Which way a layer's attention is to look, as its module states it or a prefix in its probabilities shows it."""

import re

import numpy as np
from numpy.typing import NDArray
from torch import nn

from ckaudit.contract.schema.manifest import AttentionDirection
from ckaudit.contract.schema.tensor_names import CROSS, direction_by_name
from ckaudit.recorder.hooks.sdpa_sample import sampled
from ckaudit.recorder.stats.arrays import Array, to_numpy

QUERIES = 64  # looked at for a prefix
IS_CAUSAL = ("is_causal", "causal")
CAUSAL_CLASS = re.compile(r"(?<!non)(?<!non_)causal")


def stated_direction(name: str, module: nn.Module) -> AttentionDirection | None:
    """Return which way the attention of a module is to look, by its attributes and its class; None where they do not say.

    Attributes that say so are `is_cross_attention`, `is_causal`, `causal` and `is_decoder`. A decoder's attention that is
    not causal is the one that looks across to the encoder. A configuration is not asked: its `is_decoder` is False by
    default, in decoders too.
    """
    kind = type(module).__name__.lower()
    crosses = _flag(module, "is_cross_attention")
    if crosses or (crosses is None and (direction_by_name(name) == "cross" or CROSS.search(kind))):
        return "cross"
    causal = next((flag for each in IS_CAUSAL if (flag := _flag(module, each)) is not None), None)
    decodes = _flag(module, "is_decoder")
    if causal or (causal is None and (decodes or CAUSAL_CLASS.search(kind))):
        return "causal"
    if causal is None and decodes is None:
        return None
    return "cross" if decodes else "bidirectional"


def seen_direction(
    stated: AttentionDirection | None, probabilities: Array, own: NDArray[np.intp], *, queries: int, is_certain: bool = False
) -> AttentionDirection | None:
    """Return the direction in the light of the probabilities (B, H, n, K): those of a cross-attention or of a prefix.

    "Not causal" is often said to the kernel alone, while a mask keeps the order: then the layer is causal, or has a prefix.

    Args:
        stated: What is known beforehand.
        probabilities: After softmax, of some queries.
        own: Index of the key at the place of each of them, shape (n,).
        queries: How many queries a sequence has in all.
        is_certain: Whether "not causal" is the user's own word.
    """
    if stated == "cross" or (stated == "bidirectional" and is_certain):
        return stated
    if stated is None and queries != probabilities.shape[3]:
        return "cross"
    rows = sampled(len(own), QUERIES)
    seen = to_numpy((probabilities[:, :, rows] > 0).any(1))
    if has_prefix(seen, own[rows]):
        return "prefix"
    return "causal" if stated == "bidirectional" and keeps_order(seen, own[rows]) else stated


def keeps_order(seen: NDArray[np.bool_], own: NDArray[np.intp], *, min_queries: int = 3) -> bool:
    """Return whether no query sees a later key, and `min_queries` of each sequence see their own: no padding looks like that.

    >>> order = np.arange(4)
    >>> keeps_order(np.tri(4, dtype=bool)[None], order), keeps_order(np.ones((1, 4, 4), bool), order)
    (True, False)
    """
    reach = np.where(seen, np.arange(seen.shape[2]), -1).max(2)  # (B, Q)
    return bool((reach <= own).all() and ((reach == own).sum(1) >= min_queries).all())


def has_prefix(seen: NDArray[np.bool_], own: NDArray[np.intp]) -> bool:
    """Return whether some tokens are read both ways and those after them in order only.

    A query sees to the end of its own group of tokens; every other query of that group sees as far; and somewhere a query
    ends at itself although there are keys behind it that others see. A mask that is missing or shifted leaves no such query.

    Args:
        seen: Whether any head gives a key something, shape (B, Q, K).
        own: Index of the key at each query's own place, shape (Q,).

    >>> order = np.arange(4)
    >>> both_ways = np.broadcast_to(order < 2, (1, 4, 4))
    >>> has_prefix(both_ways | np.tri(4, dtype=bool), order), has_prefix(np.ones((1, 4, 4), bool), order)
    (True, False)
    """
    keys = np.arange(seen.shape[2])
    reach = np.where(seen, keys, -1).max(2)  # (B, Q)
    ahead = reach > own
    if not ahead.any():
        return False
    within = (own[None, None] > own[None, :, None]) & (own[None, None] <= reach[:, :, None])  # (B, Q, Q)
    agrees = ~within | (reach[:, None, :] == reach[:, :, None])
    in_order = (reach == own) & (own < reach.max(1, keepdims=True))
    return bool(agrees[ahead].all() and in_order[ahead.any(1)].any(1).all())


def _flag(module: nn.Module, name: str) -> bool | None:
    found = getattr(module, name, None)
    return found if isinstance(found, bool) else None
