"""What is noted every 25 steps between checkpoints: how far a sample of the weights moved, and what the forward pass showed."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ckaudit.contract.schema.checkpoint import AttentionStats
from ckaudit.recorder.hooks.forward_stats import ForwardStats
from ckaudit.recorder.loop.vitals import Vitals
from ckaudit.recorder.stats.arrays import flat, line
from ckaudit.recorder.stats.float32_rounding import shorten
from ckaudit.recorder.stats.quantiles import stride_of

EVERY, DEAD_EVERY = 25, 50
SAMPLES = 256  # of each tensor


class WeightSample:
    """Takes the same few elements of every tensor, before an update and after it.

    Args:
        tensors: The weights; they stay where they are.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = [tensor for tensor in tensors.values() if tensor.numel() and tensor.layout == torch.strided]
        self._strides = [stride_of(tensor.shape, samples=SAMPLES) for tensor in self._tensors]
        counts = [-(-tensor.numel() // stride) for tensor, stride in zip(self._tensors, self._strides, strict=True)]
        shares = [tensor.numel() / count for tensor, count in zip(self._tensors, counts, strict=True)]
        self._stands_for = torch.tensor(shares, dtype=torch.float64).repeat_interleave(torch.tensor(counts, dtype=torch.long))

    def take(self) -> Tensor:
        """Return a copy of the elements, shape (n,)."""
        home = self._tensors[0].device if self._tensors else None
        parts = [flat(line(t)[::stride]).to(home) for t, stride in zip(self._tensors, self._strides, strict=True)]
        return torch.cat(parts) if parts else torch.zeros(0)

    def moved(self, before: Tensor) -> float | None:
        r"""Return an estimate of $\lVert\Delta W\rVert / \lVert W\rVert$ of all tensors together (M11); None of zeros.

        Each element stands for those between it and the next.
        """
        after = self.take().double()
        squares = torch.stack([(after - before) ** 2, after**2]) @ self._stands_for.to(after.device)
        delta, size = squares.tolist()
        return math.sqrt(delta / size) if size else None


def values_of(vitals: Vitals) -> dict[str, Any]:
    """Return the values of a line; what was not seen is missing."""
    values: dict[str, Any] = {
        "max_attn_logit": vitals.max_attn_logit,
        "min_normalized_entropy": vitals.min_normalized_entropy,
        "dead_head_fraction": None if not vitals.heads else shorten((vitals.dead_heads or 0) / vitals.heads),
    }
    values |= {f"residual_rms_p50/{name}": value for name, value in vitals.residual_rms_p50.items()}
    values |= {f"residual_rms_p99/{name}": value for name, value in vitals.residual_rms_p99.items()}
    values |= {f"dead_unit_fraction/{name}": shorten(found.dead / found.units) for name, found in vitals.dead_units.items()}
    return {name: value for name, value in values.items() if value is not None}


def values_seen(seen: ForwardStats) -> dict[str, Any]:
    """Return the same two numbers of attention from what a checkpoint's hooks saw, which say the rest by module."""
    logits = [float(value) for layer in seen.attention.values() for value in layer.max_logit_per_head or ()]
    shares = [float(value) for layer in seen.attention.values() for value in _shares(layer)]
    values = {"max_attn_logit": _extreme(max, logits), "min_normalized_entropy": _extreme(min, shares)}
    return {name: shorten(value) for name, value in values.items() if value is not None}


def _shares(layer: AttentionStats) -> list[Any]:
    return layer.normalized_entropy_per_head or []


def _extreme(choose: Any, values: list[float]) -> float | None:
    finite = [value for value in values if math.isfinite(value)]
    return choose(finite) if finite else (math.nan if values else None)
