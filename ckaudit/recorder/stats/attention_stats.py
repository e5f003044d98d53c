"""Statistics of the attention heads of one layer, from probabilities (B, H, Q, K)."""

import math
from typing import Any, Literal

import numpy as np
from msgspec import UNSET, Struct
from numpy.typing import NDArray

from ckaudit.contract.io.grids import encode_grids, sample_indices
from ckaudit.contract.schema.checkpoint import AttentionStats, HeadKind
from ckaudit.recorder.stats.arrays import (
    Array,
    all_to_numpy,
    as_numpy,
    library,
    local,
    to_device,
    to_float64,
    to_numpy,
    widest_float,
)
from ckaudit.recorder.stats.float32_rounding import short_ends, shortest

CHUNK = 2**22  # probabilities converted to float64 at a time: 32 MiB
FEW_PROBABILITIES = 2**18  # probabilities up to which the overhead of calls dominates
FARTHEST_OFFSET = 8
MASS = 0.5
UNIFORM = 0.95


def four_dimensional(output: Any) -> Array | None:
    """Return the (B, H, Q, K) tensor in a module's output, alone or among others; None if there is none."""
    candidates = output if isinstance(output, tuple | list) else (output,)
    return next((local(x.detach()) for x in candidates if getattr(x, "ndim", 0) == 4 and "float" in str(x.dtype)), None)


def max_logits(logits: Array) -> list[float]:
    """Return the largest finite logit before softmax of each head (M19), shape (H,); NaN if none is finite."""
    lib = library(logits)
    top: list[float] = to_float64(lib.amax(logits, (0, 2, 3))).tolist()
    if not all(map(math.isfinite, top)):
        top = to_float64(lib.amax(lib.where(lib.isfinite(logits), logits, -math.inf), (0, 2, 3))).tolist()
    return [value if math.isfinite(value) else math.nan for value in top]


class Queries(Struct, frozen=True):
    """The queries of given probabilities, if they are a sample or a mask limits what they see.

    Attributes:
        own: Index of the key at each query's own position, shape (Q,).
        seen: Number of keys that each query may see, shape (Q,), (B, 1, Q) or (B, H, Q). A query that sees none is left out of
            every mean.
    """

    own: NDArray[np.intp]
    seen: Array


def attention_stats(
    probabilities: Array,
    *,
    causal: bool | None = None,
    queries: Queries | None = None,
    grid: Literal["nested", "q8"] | None = None,
    sharp_below: float = math.log(2),
) -> tuple[AttentionStats, float | None]:
    r"""Return the statistics of one layer's attention, and the smallest normalized entropy of its heads.

    Entropy is $H = -\sum_k p_k \log p_k$ in nats, averaged over batch and queries (F9). Query i of a causal layer sees i + 1 keys
    (K - Q more with a cache), of any other layer K. Normalized entropy averages H / log(keys seen) over queries that see two keys
    or more; the sharp share counts H < log 2 (F10) among those that see three or more, since fewer cannot exceed it. Means are
    absent if no query qualifies, and NaN if a probability is NaN. The mass on later keys is absent if there are no later keys.

    Args:
        probabilities: After softmax, shape (B, H, Q, K).
        causal: Whether later keys are masked. None: they are if all of them have exactly zero weight; otherwise it is unknown,
            and not recorded.
        queries: Positions of the queries and what they see, if that does not follow from the shape and `causal`.
        grid: How to write the sampled probabilities of the first sequence.
        sharp_below: Entropy of a sharp query, from F10.
    """
    _, heads, count, keys = probabilities.shape
    if math.prod(probabilities.shape) <= FEW_PROBABILITIES:
        probabilities = as_numpy(probabilities)
    lib = library(probabilities)
    own = queries.own if queries else np.arange(count) + (keys - count)
    later = later_sum(probabilities, own)
    if queries is None:
        causal = _is_causal(causal, later, count)
    seen = queries.seen if queries else _keys_seen(probabilities, causal=bool(causal))
    seen = to_numpy(seen) if lib is np else seen
    sums = _Sums(probabilities, seen, sharp_below)
    top = lib.amax(probabilities, (0, 2, 3))
    on_device = (later, sums.counts, sums.entropy, sums.normalized, sums.sharp, to_float64(top), sums.gram, sums.average, seen)
    later, counts, entropy, of_possible, sharp, top, gram, average, seen = all_to_numpy(on_device)
    normalized = of_possible.tolist()
    if queries is not None:
        causal = _is_causal(causal, later, count)
    is_compared = bool((seen >= 2).any())
    stats = AttentionStats(
        entropy_per_head=_numbers(entropy.tolist()),
        normalized_entropy_per_head=_numbers(normalized) if is_compared else UNSET,
        sharp_share_per_head=_numbers(sharp.tolist()) if bool((seen >= 3).any()) else UNSET,
        max_attn_per_head=_numbers(top.tolist()),
        upper_triangle_mass_per_head=_numbers((later / counts).tolist()) if np.min(own) < keys - 1 else UNSET,
        nearest_similarity_per_head=_numbers(nearest(gram)) if heads > 1 else UNSET,
        kind_per_head=kinds(average, own, np.asarray((seen >= 2).reshape(-1, count).all(0)), normalized),
        sampled_qk_grid_32x32_per_head=_grids(probabilities, grid) if grid else UNSET,
        heads=heads,
        keys=int(seen.max()),
        causal=UNSET if causal is None else causal,
    )
    return stats, min(normalized, key=_nan_first, default=None) if is_compared else None


def _is_causal(stated: bool | None, later: Array, queries: int) -> bool | None:
    """Return whether later keys are masked: as stated, or if they have exactly zero weight; None if it is not known."""
    return True if stated is None and queries > 1 and not any(later.tolist()) else stated


class _Sums:
    """Means over batch and queries, accumulated over a few sequences at a time; every attribute starts with dimension H."""

    def __init__(self, probabilities: Array, seen: Array, sharp_below: float) -> None:
        batch, heads, queries, keys = probabilities.shape
        lib, sequences = library(probabilities), max(1, CHUNK // max(1, heads * queries * keys))
        seen = lib.broadcast_to(seen, (batch, heads, queries))
        one, two, three = (_divisors(seen >= min_count) for min_count in (1, 2, 3))
        self.counts = one
        self.entropy: Array = 0.0
        self.normalized: Array = 0.0
        self.sharp: Array = 0.0
        self.gram: Array = 0.0
        self.average: Array = 0.0
        for start in range(0, batch, sequences):
            p, sees = to_float64(probabilities[start : start + sequences]), seen[start : start + sequences]
            entropy = entropies(p)  # (b, H, Q)
            sharp = lib.where(lib.isnan(entropy), entropy, to_float64(entropy < sharp_below))
            self.entropy += _sum_where(sees >= 1, entropy) / one
            self.normalized += _sum_where(sees >= 2, entropy / lib.log(lib.where(sees >= 2, sees, 2.0))) / two
            self.sharp += _sum_where(sees >= 3, sharp) / three
            rows = p.swapaxes(0, 1).reshape(heads, -1)
            self.gram += rows @ rows.T
            self.average += p.sum(0) / batch


def entropies(probabilities: Array) -> Array:
    """Return the entropy of every query in nats, shape (..., K) to (...)."""
    lib = library(probabilities)
    return -(probabilities * lib.log(lib.where(probabilities == 0, 1.0, probabilities))).sum(-1)


def _divisors(qualifies: Array) -> Array:
    """Return how many queries of each head qualify, (B, H, Q) to (H,); NaN if none does."""
    lib = library(qualifies)
    count = to_float64(qualifies).sum((0, 2))
    return lib.where(count > 0, count, math.nan)


def _sum_where(qualifies: Array, values: Array) -> Array:
    return library(values).where(qualifies, values, 0.0).sum((0, 2))


def _keys_seen(probabilities: Array, *, causal: bool) -> Array:
    """Return how many keys each query may see, shape (Q,), on the device of the probabilities."""
    _, _, queries, keys = probabilities.shape
    lib = library(probabilities)
    ones = lib.ones_like(probabilities[0, 0, :, 0], dtype=widest_float(probabilities))
    return lib.clip(ones.cumsum(0) + (keys - queries), 0, keys) if causal else ones * keys


def nearest(gram: Array) -> list[float]:
    """Return each head's cosine to the most similar other head, from the products of all pairs (H, H). Shape (H,)."""
    products = to_numpy(gram)
    size = np.sqrt(products.diagonal())
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine = products / (size[:, None] * size)
    np.fill_diagonal(cosine, -math.inf)
    largest: list[float] = cosine.max(1).tolist()
    return largest


def kinds(
    average: Array,
    own: NDArray[np.intp],
    rows: NDArray[np.bool_],
    normalized: list[float],
    *,
    mass: float = MASS,
    uniform: float = UNIFORM,
) -> list[HeadKind]:
    """Return the kind of each head, from its mean attention map (H, Q, K) over those `rows` that see two keys or more.

    uniform: normalized entropy above `uniform`. first_token, diagonal: more than `mass` on the first key or on the query's own.
    positional: more than `mass` on one key at most 8 positions before or after; Voita et al. (2019, ACL) use this test for
    adjacent positions. Else content.
    """
    average, count = to_numpy(average), int(rows.sum())
    first = (average[:, rows, 0].sum(-1) / count).tolist() if count else [math.nan] * average.shape[0]
    mass_at = _offset_mass(average, rows, own)
    neighbours = [*range(FARTHEST_OFFSET), *range(FARTHEST_OFFSET + 1, mass_at.shape[1])]
    on_diagonal, near = mass_at[:, FARTHEST_OFFSET].tolist(), mass_at[:, neighbours].max(1).tolist()
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
        for even, on_first, on_own, on_near in zip(normalized, first, on_diagonal, near, strict=True)
    ]


def _offset_mass(average: NDArray[Any], rows: NDArray[np.bool_], own: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the mean probability that each head's chosen queries give to the key at each offset, shape (H, offsets).

    Offsets go from the farthest before a query's own position to the farthest after it; queries without such a key are left out.
    """
    offsets = np.arange(-FARTHEST_OFFSET, FARTHEST_OFFSET + 1)
    chosen = np.flatnonzero(rows)
    keys = own[chosen] + offsets[:, None]  # (offsets, n)
    inside = (keys >= 0) & (keys < average.shape[2])
    shares = np.where(inside, average[:, chosen, np.where(inside, keys, 0)], 0.0)  # (H, offsets, n)
    means: NDArray[np.float64] = shares.sum(-1) / np.maximum(inside.sum(-1), 1)
    return means


def later_sum(probabilities: Array, own: NDArray[np.intp]) -> Array:
    """Return the sum of the probabilities that each head's queries give to later keys, shape (H,)."""
    lib, later = library(probabilities), np.arange(probabilities.shape[3]) > own[:, None]  # (Q, K)
    mask = later if lib is np else to_device(later, probabilities.device)
    return lib.sum(lib.where(mask, probabilities, 0.0), (0, 2, 3), dtype=widest_float(probabilities))


def _grids(probabilities: Array, encoding: Literal["nested", "q8"]) -> Any:
    rows, columns = (sample_indices(size) for size in probabilities.shape[2:])
    return short_ends(encode_grids(to_numpy(to_float64(probabilities[0][:, rows[:, None], columns])), encoding))


def _numbers(values: list[float]) -> list[Any]:
    return [shortest(value) for value in values]


def _nan_first(value: float) -> float:
    return -math.inf if math.isnan(value) else value
