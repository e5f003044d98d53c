"""Vital signs, noted every 25 steps between checkpoints: attention logits and entropy, and the movement of sampled weights."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from msgspec import Struct, field
from numpy.typing import NDArray
from torch import Tensor, nn

from ckaudit.contract.schema.tensor_names import depth_of
from ckaudit.recorder.hooks.forward_stats import ForwardStats
from ckaudit.recorder.hooks.sdpa_sample import AttentionCall, sampled, take
from ckaudit.recorder.loop.step_state import lowest
from ckaudit.recorder.stats.activation_stats import FEWEST_ROWS, dead_units
from ckaudit.recorder.stats.arrays import all_to_numpy, dense, flat, ravel, real_shape, to_device, to_float64
from ckaudit.recorder.stats.attention_stats import entropies, later_sum
from ckaudit.recorder.stats.float32_rounding import shorten
from ckaudit.recorder.stats.quantiles import quantiles_of, stride_of

EVERY, DEAD_EVERY = 25, 50
MAX_SAMPLES_PER_TENSOR = 256  # elements of each tensor
MAX_QUERIES, MAX_TOKENS = 16, 256


class DeadUnits(Struct, frozen=True):
    """Units of an activation function that stayed silent (F8).

    Attributes:
        dead: Number of silent units.
        units: Number of units.
    """

    dead: int
    units: int


class VitalSigns(Struct, frozen=True, kw_only=True):
    """Vital signs of one forward pass; None or empty if not seen.

    Attributes:
        max_attn_logit: Largest scaled logit before softmax, of all layers and heads (M19).
        min_normalized_entropy: Smallest normalized entropy of a head; NaN if one is NaN.
        residual_rms_p50: By block, the median over tokens of the root mean square of a token's vector (M21).
        residual_rms_p99: By block, the 99th percentile of the same.
        dead_units: Dead units by activation function, if requested (F8).
        dead_heads: Heads with more than 99 % sharp queries, if requested (F10).
        heads: Number of heads.
    """

    max_attn_logit: float | None = None
    min_normalized_entropy: float | None = None
    residual_rms_p50: dict[str, float] = field(default_factory=dict)
    residual_rms_p99: dict[str, float] = field(default_factory=dict)
    dead_units: dict[str, DeadUnits] = field(default_factory=dict)
    dead_heads: int | None = None
    heads: int | None = None


class DeferredNumbers(Struct):
    """Numbers that stay on the model's device: fetching each at once would make the training wait.

    Attributes:
        logits: Largest finite logit of each head, a tensor (H,) per layer; NaN if none is finite, minus infinity where no key
            may be seen.
        shares: Normalized entropy and sharp share of each head, a tensor (2, H) per layer; infinite if there is none.
        norms: Root mean square of sampled tokens, a tensor (n,) per block.
        dead: Number of dead units and of all units, by activation function.
    """

    logits: list[Tensor] = field(default_factory=list)
    shares: list[Tensor] = field(default_factory=list)
    norms: dict[str, Tensor] = field(default_factory=dict)
    dead: dict[str, tuple[Tensor, int]] = field(default_factory=dict)

    def vitals(self, *, dead: bool, dead_above: float = 0.99) -> VitalSigns:
        """Fetch the numbers, and return the vital signs.

        Args:
            dead: Whether dead heads are counted.
            dead_above: Share of sharp queries of a dead head, from F10.
        """
        counts = [count for count, _ in self.dead.values()]
        arrays = iter(all_to_numpy([*self.logits, *self.shares, *self.norms.values(), *counts]))
        logits = [value for _ in self.logits for value in next(arrays).tolist() if value != -math.inf]
        shares = [next(arrays).tolist() for _ in self.shares]
        entropy, sharp = ([value for layer in shares for value in layer[which] if value != math.inf] for which in (0, 1))
        norms = [of_block[np.isfinite(of_block)] for of_block in (next(arrays) for _ in self.norms)]
        spread = dict(zip(self.norms, quantiles_of(norms, (50, 99)), strict=True))
        return VitalSigns(
            max_attn_logit=_shorter(max(filter(math.isfinite, logits), default=math.nan if logits else None)),
            min_normalized_entropy=_shorter(lowest(entropy)),
            residual_rms_p50={name: shorten(p50) for name, (p50, _) in spread.items()},
            residual_rms_p99={name: shorten(p99) for name, (_, p99) in spread.items()},
            dead_units={name: DeadUnits(int(next(arrays)), units) for name, (_, units) in self.dead.items()},
            dead_heads=sum(share > dead_above for share in sharp) if dead and sharp else None,
            heads=len(sharp) if dead and sharp else None,
        )

    def see_call(self, call: AttentionCall) -> None:
        """Note the attention statistics of one layer, from a sample of its queries."""
        if (sample := take(call, queries=MAX_QUERIES, sequences=1)) is not None:
            self.see_logits(sample.logits)
            self._see_entropies(sample.probabilities, sample.queries.seen)

    def see_probabilities(self, probabilities: Tensor, *, causal: bool | None) -> None:
        """Note the entropies of one layer, from its probabilities (B, H, Q, K); see `attention_stats` for `causal`."""
        queries, keys = probabilities.shape[2:]
        rows = sampled(queries, MAX_QUERIES)
        own_keys, some = rows + (keys - queries), _rows(probabilities, rows)
        if causal is None:
            causal = queries > 1 and not bool(later_sum(some, own_keys).any())
        seen = to_device(own_keys + 1 if causal else own_keys * 0 + keys, some.device)
        self._see_entropies(some, to_float64(seen.clamp(0, keys)))

    def see_logits(self, logits: Tensor) -> None:
        """Note the largest logit of each head, from logits (B, H, Q, K)."""
        some = _rows(logits, sampled(logits.shape[2], MAX_QUERIES))
        top = some.masked_fill(~some.isfinite(), -math.inf).amax((0, 2, 3))
        is_broken = (top == -math.inf) & ~some.isneginf().all(-1).all(-1).all(0)
        self.logits.append(top.masked_fill(is_broken, math.nan))

    def _see_entropies(self, probabilities: Tensor, seen: Tensor, *, sharp_below: float = math.log(2)) -> None:
        """Note the means over queries of one layer, computed as in `attention_stats`."""
        entropy = entropies(to_float64(probabilities))  # (b, H, n)
        relative = entropy / seen.clamp(min=2).log()
        sharp = torch.where(entropy.isnan(), entropy, to_float64(entropy < sharp_below))
        self.shares.append(torch.stack([_mean_where(seen >= 2, relative), _mean_where(seen >= 3, sharp)]))

    def see_block(self, name: str, output: Tensor) -> None:
        """Note the size of a block's output (..., D) at sampled tokens."""
        rows = dense(output).reshape(-1, output.shape[-1])
        rows = rows[:: max(1, -(-len(rows) // MAX_TOKENS))]
        self.norms[name] = torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float32) / math.sqrt(rows.shape[-1])

    def see_function(self, name: str, output: Tensor) -> None:
        """Note the silent units in an activation function's output (..., units)."""
        if 2 <= output.ndim <= 3 and len(rows := dense(output).reshape(-1, output.shape[-1])) >= FEWEST_ROWS:
            self.dead[name] = dead_units(rows), output.shape[-1]


def blocks(modules: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    """Return the blocks of a model: numbered modules with children that lie in no other block."""
    return {name: module for name, module in modules.items() if _is_block(name) and any(True for _ in module.children())}


def _is_block(name: str) -> bool:
    parent, _, last = name.rpartition(".")
    return last.isdecimal() and depth_of(parent) is None


def _rows(values: Tensor, rows: NDArray[np.intp]) -> Tensor:
    return values[:1, :, to_device(rows, values.device)]


def _mean_where(qualifies: Tensor, values: Tensor) -> Tensor:
    """Return the mean over batch and queries for each head, (b, H, n) to (H,); infinite if no query qualifies."""
    qualifies = qualifies.broadcast_to(values.shape)
    count = qualifies.sum((0, 2))
    return torch.where(count > 0, values.masked_fill(~qualifies, 0.0).sum((0, 2)) / count, math.inf)


def _shorter(value: float | None) -> float | None:
    return None if value is None else shorten(value)


# The vital signs as log values, and the movement of sampled weights.
class WeightSample:
    """Samples the same few elements of every trainable tensor, before and after an update.

    Args:
        tensors: The weights; they stay on their device. Tensors that are frozen at the time are left out.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = [tensor for tensor in tensors.values() if tensor.numel() and tensor.layout == torch.strided]
        shapes = [real_shape(tensor) for tensor in self._tensors]
        self._strides = [stride_of(shape, samples=MAX_SAMPLES_PER_TENSOR) for shape in shapes]
        counts = [-(-math.prod(shape) // stride) for shape, stride in zip(shapes, self._strides, strict=True)]
        self._shares = [torch.full((n,), math.prod(shape) / n).double() for shape, n in zip(shapes, counts, strict=True)]

    def take(self) -> Tensor:
        """Return a copy of the elements, shape (n,)."""
        home = self._tensors[0].device if self._tensors else None
        pairs = zip(self._tensors, self._strides, strict=True)
        parts = [flat(ravel(tensor)[::stride]).to(home) for tensor, stride in pairs if tensor.requires_grad]
        return torch.cat(parts) if parts else torch.zeros(0)

    def moved(self, before: Tensor) -> float | None:
        r"""Return an estimate of $\lVert\Delta W\rVert / \lVert W\rVert$ of all tensors together (M11).

        Each element counts for all up to the next one. None if the weights are zero, or if other tensors were trainable before.
        """
        after = to_float64(self.take())
        if after.shape != before.shape or not len(after):
            return None
        shares = [share for tensor, share in zip(self._tensors, self._shares, strict=True) if tensor.requires_grad]
        squares = torch.stack([(after - before) ** 2, after**2]) @ torch.cat(shares).to(after.dtype).to(after.device)
        delta, size = squares.tolist()
        return math.sqrt(delta / size) if size else None


def values_of(vitals: VitalSigns) -> dict[str, Any]:
    """Return the vital signs as log values; a value that was not seen is missing."""
    values: dict[str, Any] = {
        "max_attn_logit": vitals.max_attn_logit,
        "min_normalized_entropy": vitals.min_normalized_entropy,
        "dead_head_fraction": None if not vitals.heads else shorten((vitals.dead_heads or 0) / vitals.heads),
    }
    values |= {f"residual_rms_p50/{name}": value for name, value in vitals.residual_rms_p50.items()}
    values |= {f"residual_rms_p99/{name}": value for name, value in vitals.residual_rms_p99.items()}
    values |= {f"dead_unit_fraction/{name}": shorten(units.dead / units.units) for name, units in vitals.dead_units.items()}
    return {name: value for name, value in values.items() if value is not None}


def values_seen(seen: ForwardStats) -> dict[str, Any]:
    """Return the two attention vital signs from a checkpoint's hooks; the checkpoint has the others by module."""
    logits = [float(value) for layer in seen.attention.values() for value in layer.max_logit_per_head or ()]
    shares = [float(value) for layer in seen.attention.values() for value in layer.normalized_entropy_per_head or ()]
    values = {"max_attn_logit": _extreme(max, logits), "min_normalized_entropy": _extreme(min, shares)}
    return {name: shorten(value) for name, value in values.items() if value is not None}


def _extreme(choose: Any, values: list[float]) -> float | None:
    finite = [value for value in values if math.isfinite(value)]
    return choose(finite) if finite else (math.nan if values else None)
