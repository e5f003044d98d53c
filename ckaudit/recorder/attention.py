"""Attention: what the probabilities (B, H, Q, K) of one layer say about each of its heads."""

import math
from typing import Any, Literal

import torch
from msgspec import UNSET
from torch import Tensor

from ckaudit.contract.behaviour import AttentionStats, HeadKind
from ckaudit.contract.grids import encode_grids, sample_indices
from ckaudit.recorder.tensors import shortest

CHUNK = 2**22  # probabilities turned into float64 at a time: 32 MiB
FARTHEST_OFFSET = 8
MASS = 0.5
UNIFORM = 0.95


def four_dimensional(output: Any) -> Tensor | None:
    """Return the (B, H, Q, K) tensor that a module put out, alone or among others; None where there is none."""
    candidates = output if isinstance(output, tuple | list) else (output,)
    return next((x.detach() for x in candidates if isinstance(x, Tensor) and x.is_floating_point() and x.ndim == 4), None)


def max_logits(logits: Tensor) -> list[float]:
    """Return the largest finite logit before softmax of each head (M19); NaN where none is finite. Shape (H,)."""
    finite = logits.isfinite()
    top = logits.masked_fill(~finite, -math.inf).amax(dim=(0, 2, 3)).double()
    found: list[float] = torch.where(finite.any(0).any(-1).any(-1), top, math.nan).tolist()
    return found


def attention_stats(
    probabilities: Tensor,
    *,
    causal: bool | None = None,
    grid: Literal["nested", "q8"] | None = None,
    sharp_below: float = math.log(2),
) -> tuple[AttentionStats, float | None]:
    r"""Return the statistics of one layer's attention, and the smallest normalized entropy of its heads.

    Entropy is $H = -\sum_k p_k \log p_k$ in nats, averaged over batch and queries (F9). Query i of a causal layer sees
    i + 1 keys (K - Q more with a cache), of any other layer K. Normalized entropy averages H / log(keys seen) over queries
    that see two keys or more; the sharp share counts H < log 2 (F10) among those that see three or more, since fewer
    cannot exceed it. Means are left out where no query qualifies, and NaN where a probability is.

    Args:
        probabilities: After softmax, shape (B, H, Q, K).
        causal: Whether later keys are forbidden. None: they are, where all of them got exactly nothing; otherwise it is
            not known, and not recorded.
        grid: How to write the sampled probabilities of the first sequence.
        sharp_below: Entropy of a sharp query, from F10.
    """
    _, heads, queries, keys = probabilities.shape
    later = torch.ones(queries, keys, dtype=torch.bool, device=probabilities.device).triu(keys - queries + 1)
    mass = _upper_mass(probabilities, later)
    if causal is None and queries > 1 and not mass.any():
        causal = True
    seen = (~later).sum(-1) if causal else torch.full((queries,), keys, device=probabilities.device)
    sums = _Sums(probabilities, seen, sharp_below)
    normalized = sums.normalized.tolist()
    stats = AttentionStats(
        entropy_per_head=_numbers(sums.entropy.tolist()),
        normalized_entropy_per_head=_numbers(normalized) if bool((seen >= 2).any()) else UNSET,
        sharp_share_per_head=_numbers(sums.sharp.tolist()) if bool((seen >= 3).any()) else UNSET,
        max_attn_per_head=_numbers(probabilities.amax(dim=(0, 2, 3)).double().tolist()),
        upper_triangle_mass_per_head=_numbers(mass.tolist()),
        nearest_similarity_per_head=_numbers(nearest(sums.gram).tolist()) if heads > 1 else UNSET,
        kind_per_head=kinds(sums.average, seen, normalized),
        sampled_qk_grid_32x32_per_head=_grids(probabilities, grid) if grid else UNSET,
        heads=heads,
        keys=keys,
        causal=UNSET if causal is None else causal,
    )
    return stats, min(normalized, key=_nan_first, default=None) if bool((seen >= 2).any()) else None


class _Sums:
    """Means over batch and queries, gathered a few sequences at a time; every attribute starts with dimension H."""

    def __init__(self, probabilities: Tensor, seen: Tensor, sharp_below: float) -> None:
        batch, heads, queries, keys = probabilities.shape
        zeros = probabilities.new_zeros(heads, dtype=torch.float64)
        self.entropy, self.normalized, self.sharp = zeros.clone(), zeros.clone(), zeros.clone()
        self.gram = zeros.new_zeros(heads, heads)
        self.average = zeros.new_zeros(heads, queries, keys)
        two, three = seen >= 2, seen >= 3
        for piece in torch.split(probabilities, max(1, CHUNK // max(1, heads * queries * keys))):
            p = piece.double()
            entropy = torch.special.entr(p).sum(-1)  # (b, H, Q)
            self.entropy += entropy.sum((0, 2)) / (batch * queries)
            self.normalized += (entropy[..., two] / seen[two].log()).sum((0, 2)) / (batch * max(1, int(two.sum())))
            sharp = torch.where(entropy.isnan(), entropy, (entropy < sharp_below).double())
            self.sharp += sharp[..., three].sum((0, 2)) / (batch * max(1, int(three.sum())))
            self.gram += torch.einsum("bhqk,bgqk->hg", p, p)
            self.average += p.sum(0) / batch


def nearest(gram: Tensor) -> Tensor:
    """Return each head's cosine to the most similar other head, from the products of all pairs (H, H). Shape (H,)."""
    size = gram.diagonal().sqrt()
    cosine = gram / (size[:, None] * size)
    return cosine.fill_diagonal_(-math.inf).amax(1)


def kinds(
    average: Tensor, seen: Tensor, normalized: list[float], *, mass: float = MASS, uniform: float = UNIFORM
) -> list[HeadKind]:
    """Return what each head mostly follows, from its mean map (H, Q, K) over queries that see two keys or more.

    uniform: normalized entropy above `uniform`. first_token, diagonal: more than `mass` on the first key or on the
    query's own. positional: more than `mass` on one key at most 8 places before or after, the test that Voita et al.
    (2019, ACL) made with its neighbours. Else content.
    """
    rows = seen >= 2
    _, queries, keys = average.shape
    first = average[:, rows, 0].mean(-1).tolist()
    offsets = [o for o in range(-FARTHEST_OFFSET, FARTHEST_OFFSET + 1) if o]
    own = _offset_mass(average, rows, keys - queries).tolist()
    near = torch.stack([_offset_mass(average, rows, keys - queries + o) for o in offsets]).amax(0).tolist()
    return [
        "uniform"
        if even > uniform
        else "first_token"
        if on_first > mass
        else "diagonal"
        if on_own > mass
        else "positional"
        if on_near > mass
        else "content"
        for even, on_first, on_own, on_near in zip(normalized, first, own, near, strict=True)
    ]


def _offset_mass(average: Tensor, rows: Tensor, offset: int) -> Tensor:
    place = torch.arange(average.shape[1], device=average.device)
    inside = rows & (place + offset >= 0) & (place + offset < average.shape[2])
    if not bool(inside.any()):
        return average.new_zeros(average.shape[0])
    return average[:, place[inside], place[inside] + offset].mean(-1)


def _upper_mass(probabilities: Tensor, later: Tensor) -> Tensor:
    batch, _, queries, _ = probabilities.shape
    total = (probabilities * later).sum(-1, dtype=torch.float64).sum((0, 2))
    return total / (batch * queries)


def _grids(probabilities: Tensor, encoding: Literal["nested", "q8"]) -> Any:
    rows, columns = (torch.as_tensor(sample_indices(size), device=probabilities.device) for size in probabilities.shape[2:])
    return encode_grids(probabilities[0][:, rows[:, None], columns].double().cpu().numpy(), encoding)


def _numbers(values: list[float]) -> list[Any]:
    return [shortest(value) for value in values]


def _nan_first(value: float) -> float:
    return -math.inf if math.isnan(value) else value
