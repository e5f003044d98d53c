"""Fused attention (SDPA): logits and probabilities, recomputed for a sample of queries."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from msgspec import UNSET, Struct
from msgspec.structs import replace
from numpy.typing import NDArray
from torch import Tensor

from ckaudit.contract.io.grids import encode_grids, sample_indices
from ckaudit.contract.schema.checkpoint import AttentionStats
from ckaudit.recorder.stats.arrays import is_on_accelerator, to_device, to_float64, to_numpy
from ckaudit.recorder.stats.attention_stats import Queries, attention_stats

ARGUMENTS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
# Additive masks add -1e4, -1e9, the smallest number of a dtype, or minus infinity. Real logits are far from that.
FORBIDDEN = -8e3
MAX_LOGITS = 2**24  # logits computed at a time: 64 MiB
MAX_LOGITS_ON_ACCELERATOR = 2**26  # on an accelerator, where the overhead of a call dominates: 256 MiB
SEQUENCES = 2


class AttentionCall(Struct, frozen=True):
    """One computation of attention, from which the logits of any query can be recomputed.

    Attributes:
        shape: Sequences, query heads, queries and keys.
        device: Device of its tensors.
        first: Index of the key at the first query's own position.
        kv_heads: Number of key heads, if several query heads share one.
        inputs: Tensors that the logits are computed from; their first dimension is the sequences, or 1 for all of them.
        logits: Takes `inputs`, a number of sequences and the positions of n queries. Returns new scaled logits (b, H, n, K) in
            float32, including an additive mask, and whether each key may be seen, in a broadcastable shape.
    """

    shape: tuple[int, int, int, int]
    device: torch.device
    first: int
    kv_heads: int | None
    inputs: tuple[Tensor, ...]
    logits: Callable[[Sequence[Tensor], int, Tensor], tuple[Tensor, Tensor]]

    def first_sequences(self, count: int = SEQUENCES) -> "AttentionCall":
        """Return the call for the first `count` sequences only."""
        return replace(
            self, shape=(min(count, self.shape[0]), *self.shape[1:]), inputs=tuple(tensor[:count] for tensor in self.inputs)
        )

    def some_sequences(self, start: int, end: int) -> "AttentionCall":
        """Return the call for the sequences from `start` up to `end`; tensors that all sequences share stay unchanged."""
        batch = self.shape[0]
        inputs = tuple(tensor[start:end] if len(tensor) == batch else tensor for tensor in self.inputs)
        return replace(self, shape=(min(end, batch) - start, *self.shape[1:]), inputs=inputs)

    def copied(self) -> "AttentionCall":
        """Return the call with copied tensors, which the model does not write to."""
        return replace(self, inputs=tuple(tensor.clone() for tensor in self.inputs))


class SampledQueries(Struct, frozen=True):
    """Some queries of a call.

    Attributes:
        probabilities: Probabilities after softmax, (b, H, n, K); 0 if a query may see no key.
        logits: Logits before softmax, minus infinity where a key is masked.
        queries: Positions of the queries and the number of keys that they see.
        kv_heads: Number of key heads, if several query heads share one.
        cells: Probabilities of the first sequence at the queries and keys of a grid, (H, r, c), if requested.
    """

    probabilities: Tensor
    logits: Tensor
    queries: Queries
    kv_heads: int | None = None
    cells: Tensor | None = None


def fused_call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> AttentionCall | None:
    """Return a call of `scaled_dot_product_attention`; None if its tensors are not of shape (B, H, L, E) or (B, L, E).

    By definition its causal mask starts at the first key, whatever the number of queries. Without a causal mask, the queries are
    aligned with the last keys.
    """
    inputs = dict(zip(ARGUMENTS, args, strict=False)) | dict(kwargs)
    query, key, mask = _with_heads(inputs["query"]), _with_heads(inputs["key"]), inputs.get("attn_mask")
    if query is None or key is None:
        return None
    if mask is not None and mask.ndim == 3 and inputs["query"].ndim == 3:
        mask = mask.unsqueeze(1)
    masks = () if mask is None else (mask.detach()[(None,) * (4 - mask.ndim)],)
    batch, heads, queries, size = query.shape
    scale, causal = inputs.get("scale"), bool(inputs.get("is_causal", False))
    shape = (batch, heads, queries, key.shape[2])

    def logits(inputs: Sequence[Tensor], sequences: int, rows: Tensor) -> tuple[Tensor, Tensor]:
        query, key, *masks = inputs
        # All of them need no copy.
        some = query[:sequences] if len(rows) == queries else query[:sequences, :, rows]
        tensor = _products(some, key[:sequences])
        tensor *= 1 / math.sqrt(size) if scale is None else scale
        keys = torch.arange(shape[3], device=query.device)
        seen = keys <= rows[:, None] if causal else torch.ones_like(keys, dtype=torch.bool).expand(len(rows), -1)
        if not masks:
            return tensor, seen
        part = masks[0].broadcast_to((len(query), *shape[1:]))[:sequences, :, rows]
        return (tensor, seen & part) if part.dtype == torch.bool else (tensor + part, seen & ~(part <= FORBIDDEN))

    first, kv_heads = 0 if causal else shape[3] - queries, key.shape[1] if key.shape[1] < heads else None
    return AttentionCall(shape, query.device, first, kv_heads, (query, key, *masks), logits)


def softmax_call(logits: Tensor, heads: int | None = None) -> AttentionCall | None:
    """Return the attention of a softmax over logits (B, H, Q, K), or (B * H, Q, K) if `heads` is known.

    None if there is one key more than queries: that is an attention sink, and the positions of the queries are unknown.
    """
    if logits.ndim == 3 and heads and logits.shape[0] % heads == 0:
        logits = logits.reshape(-1, heads, *logits.shape[1:])
    if logits.ndim != 4 or not logits.is_floating_point() or logits.is_nested:
        return None
    batch, count, queries, keys = logits.shape
    if keys == queries + 1:
        return None

    def part(inputs: Sequence[Tensor], sequences: int, rows: Tensor) -> tuple[Tensor, Tensor]:
        rows_of_logits = inputs[0][:sequences, :, rows]
        return rows_of_logits.float(), ~(rows_of_logits <= FORBIDDEN)

    return AttentionCall((batch, count, queries, keys), logits.device, keys - queries, None, (logits.detach(),), part)


def sampled(size: int, count: int) -> NDArray[np.intp]:
    """Return `count` evenly spread positions, including the first and the last; all if there are fewer.

    >>> sampled(10, 4).tolist(), sampled(2, 64).tolist()
    ([0, 3, 6, 9], [0, 1])
    """
    count = min(size, count)
    return np.arange(count) * (size - 1) // max(count - 1, 1)


def take(
    call: AttentionCall, *, queries: int, sequences: int = SEQUENCES, largest: int = MAX_LOGITS, with_cells: bool = False
) -> SampledQueries | None:
    """Return a sample of a call's queries; None if it has no queries or no keys.

    Args:
        call: The call.
        queries: Maximum number of queries per sequence.
        sequences: Maximum number of sequences.
        largest: Maximum number of logits; to stay below it, fewer sequences and then fewer queries are taken.
        with_cells: Whether to add the cells of a grid, which has its own queries, the same in every grid.
    """
    batch, heads, count, keys = call.shape
    if not math.prod(call.shape):
        return None
    room = largest // (heads * keys)
    sequences = max(1, min(batch, sequences, room // queries))
    sample = _sample(call, sequences, sampled(count, max(2, min(queries, room // sequences))))
    if not with_cells:
        return sample
    rows, columns = (sample_indices(size) for size in (count, keys))
    return replace(sample, cells=_sample(call, 1, rows).probabilities[0][..., columns])


def _sample(call: AttentionCall, sequences: int, places: NDArray[np.intp]) -> SampledQueries:
    logits, seen = call.logits(call.inputs, sequences, to_device(places, call.device))
    count = seen.sum(-1).broadcast_to(logits.shape[:-1])  # (b, H, n)
    logits.masked_fill_(~seen, -math.inf)
    probabilities = logits.softmax(-1)
    see_nothing = count == 0
    if is_on_accelerator(logits) or bool(see_nothing.any()):
        probabilities.masked_fill_(see_nothing[..., None], 0.0)
    return SampledQueries(probabilities, logits, Queries(places + call.first, to_float64(count)), call.kv_heads)


def sample_stats(
    sample: SampledQueries, *, causal: bool | None = None, grid: Literal["nested", "q8"] | None = None
) -> tuple[AttentionStats, float | None] | None:
    """Return the statistics of a call's sampled queries, and the smallest normalized entropy of its heads.

    None if no query may see a key. The arguments are those of `attention_stats`; a grid is made of the sample's cells.
    """
    stats, lowest = attention_stats(sample.probabilities, causal=causal, queries=sample.queries)
    if not stats.keys:
        return None
    stats.kv_heads = UNSET if sample.kv_heads is None else sample.kv_heads
    if grid and sample.cells is not None:
        stats.sampled_qk_grid_32x32_per_head = encode_grids(to_numpy(to_float64(sample.cells)), grid)
    return stats, lowest


def largest_logits(call: AttentionCall, *, largest: int | None = None) -> Tensor:
    """Return the largest finite logit of each head over all sequences, queries and keys that may be seen (M19), shape (H,).

    NaN if there is none. The logits are computed in blocks, and the result stays on its device.

    Args:
        call: The call.
        largest: Maximum number of logits at a time; more only if one query of all heads has more. None: the default of the
            device.
    """
    batch, heads, count, keys = call.shape
    largest = largest or (MAX_LOGITS if call.device.type == "cpu" else MAX_LOGITS_ON_ACCELERATOR)
    top = torch.full((heads,), -math.inf, device=call.device)
    if not math.prod(call.shape):
        return torch.full_like(top, math.nan)
    at_once = max(1, largest // (heads * count * keys))
    rows = min(count, max(1, largest // (heads * keys)))
    for start in range(0, batch, at_once):
        part = call.some_sequences(start, start + at_once)
        for first in range(0, count, rows):
            places = torch.arange(first, min(first + rows, count), device=call.device)
            logits, seen = part.logits(part.inputs, part.shape[0], places)
            logits.masked_fill_(~seen, -math.inf)
            if is_on_accelerator(logits):  # testing whether all are finite would synchronise with the accelerator
                logits.nan_to_num_(nan=-math.inf, posinf=-math.inf, neginf=-math.inf)
            tensor = logits.amax((0, 2, 3))
            if not is_on_accelerator(logits) and bool((tensor.isnan() | tensor.isposinf()).any()):
                tensor = logits.masked_fill_(~logits.isfinite(), -math.inf).amax((0, 2, 3))
            top = torch.maximum(top, tensor)
    return torch.where(top.isfinite(), top, math.nan)


def _with_heads(tensor: Tensor) -> Tensor | None:
    """Return a tensor (B, H, L, E), with one head if it had no head dimension."""
    if tensor.is_nested or tensor.ndim not in (3, 4):
        return None
    return tensor.detach() if tensor.ndim == 4 else tensor.detach().unsqueeze(1)


def _products(query: Tensor, key: Tensor) -> Tensor:
    """Return the products of queries and keys in float32; neighbouring query heads share a key head if there are fewer."""
    if torch.is_autocast_enabled(query.device.type):
        # Otherwise the product would be computed in half precision.
        with torch.autocast(query.device.type, enabled=False):
            return _products(query, key)
    batch, heads, count, size = query.shape
    if heads == key.shape[1]:
        return query.float() @ key.float().transpose(-1, -2)
    groups = query.float().reshape(batch, key.shape[1], -1, count, size)
    return (groups @ key.float()[:, :, None].transpose(-1, -2)).reshape(batch, heads, count, -1)
