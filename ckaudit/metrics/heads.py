"""What attention heads do, and which of them do the same, from sampled maps where a checkpoint does not say."""

from collections.abc import Callable
from functools import cache
from typing import get_args

import numpy as np
from msgspec.structs import replace

from ckaudit.contract.behaviour import HeadKind
from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled
from ckaudit.run.run import Grids, Run
from ckaudit.run.series import Floats, Mask, Series, Steps, at, empty

KINDS: tuple[HeadKind, ...] = get_args(HeadKind)
UNIFORM = KINDS.index("uniform")

_GRIDS = ("attention.*.sampled_qk_grid_32x32_per_head", "attention.*.sampled_qk_grid_32x32")
_OF_HEADS = ("attention.*.entropy_per_head", "attention.*.max_attn_per_head")


@metric(unit="1", reads=["attention.*.nearest_similarity_per_head", *_GRIDS], source="playbook D3.2", memory=1)
def head_similarity(run: Run) -> Series:
    r"""Cosine of each head's attention to the most similar other head of its layer.

    $$\max_{g \ne h} \frac{\langle A_h, A_g \rangle}{\lVert A_h \rVert \lVert A_g \rVert}$$

    Shape (C, H): checkpoints by query heads, 0 to 1. Of whole maps where the checkpoint says it, else of the sampled grids
    of 32 by 32. Not recorded for a single head.
    """
    return filled(run.series("attention", "nearest_similarity_per_head"), _of_grids(run, _nearest))


@metric(
    unit="kind", reads=["attention.*.kind_per_head", *_GRIDS, *_OF_HEADS],
    source="playbook D2.5 and D3.1; Voita et al. 2019", memory=1,
)  # fmt: skip
def head_kind(run: Run) -> Series:
    r"""What each head mostly follows: 0 positional, 1 first token, 2 diagonal, 3 uniform, 4 content.

    $$\text{uniform: } H / \log K > 0.95, \quad \text{else the place with } \tfrac1Q \sum_q \alpha_{q,\cdot} > \tfrac12$$

    Shape (C, H): checkpoints by query heads. As the checkpoint says, else from the sampled grids, whose rows are scaled to
    sum to 1: first token and diagonal are the share of these columns, positional that of any other distance of up to 8
    samples. Of sequences longer than 32 a grid sees every n-th key, so that a head of the previous token looks like content.
    """
    kinds = _of_grids(run, _kinds)
    flat = kinds.recorded & (kinds.values == UNIFORM) & _chooses(run, kinds)
    sampled = replace(kinds, values=np.where(flat, np.nan, kinds.values), recorded=kinds.recorded & ~flat)
    return filled(run.series("attention", "kind_per_head"), sampled)


@metric(unit="1", reads=[*_GRIDS, *_OF_HEADS], source="playbook D2.5 and D3.1", memory=1)
def sampled_evenness(run: Run) -> Series:
    r"""Entropy of each head's sampled map, relative to that of looking everywhere alike.

    $$h = \tfrac{1}{|Q|} \sum_q H_q / \log K_q$$

    Shape (C, H): checkpoints by query heads, 0 to 1; K are the sampled keys that a query sees. It needs no number of keys, but
    sees every n-th key only. Not recorded where the head's own entropy and largest weight say that the map is not its own: a
    head that gives one key over twice what an even one of this entropy could is not even.
    """
    even = _of_grids(run, _evenness)
    false = (even.values > 0.95) & _chooses(run, even)
    return replace(even, values=np.where(false, np.nan, even.values), recorded=even.recorded & ~false)


@metric(unit="1", reads=list(_GRIDS), source="playbook, broken causal mask", memory=1)
def sampled_upper_mass(run: Run) -> Series:
    r"""Attention that the sampled queries of each head give to later sampled keys.

    $$\tfrac{1}{|Q|} \sum_q \sum_{k > q} \alpha_{q,k} \,/\, \sum_k \alpha_{q,k}$$

    Shape (C, H): checkpoints by query heads, 0 to 1; of square maps alone, in which the n-th query is the n-th key.
    """
    return _of_grids(run, _later)


def _later(maps: Floats) -> Floats:
    """Return the share of each head's map (H, q, k) above the diagonal, NaN where it is not square, not finite or empty."""
    _, queries, keys = maps.shape
    if queries != keys or keys < 2:
        return np.full(len(maps), np.nan)
    with np.errstate(all="ignore"):
        shares = maps / maps.sum(axis=2, keepdims=True)
    return np.asarray(np.where(_earlier(keys), 0.0, shares).sum(axis=2).mean(axis=1) + 0 * shares.sum(axis=(1, 2)))


def _chooses(run: Run, heads: Series, *, twice: float = 2.0) -> Mask:
    """Tell of each cell whether the head surely prefers a key: no even head of its entropy gives one so much.

    An even head gives each key exp(-H). The first query of a causal head sees one key and gives it 1, which tells nothing.
    """
    chooses = np.zeros(heads.values.shape, bool)
    entropy, largest = (run.series("attention", field) for field in ("entropy_per_head", "max_attn_per_head"))
    for column, label in enumerate(heads.labels):
        if label in entropy.labels and label in largest.labels:
            mean = at(entropy, heads.steps).values[:, entropy.labels.index(label)]
            top = at(largest, heads.steps).values[:, largest.labels.index(label)]
            chooses[:, column] = (top < 0.999) & (top > twice * np.exp(-mean))
    return chooses


@metric(unit="1", reads=[head_kind], source="playbook D3.1", memory=1)
def head_kind_share(run: Run) -> Series:
    r"""Share of the heads of each kind.

    $$s_k = \tfrac1H \sum_h \mathbb{1}[\,\mathrm{kind}_h = k\,]$$

    Shape (C, 5): checkpoints by kinds: positional, first_token, diagonal, uniform, content; over the heads whose kind is
    known.
    """
    kinds = head_kind(run).recorded_rows()
    known = kinds.recorded.sum(axis=1)
    shares = [(kinds.recorded & (kinds.values == place)).sum(axis=1) / known for place in range(len(KINDS))]
    values = np.array(shares).reshape(len(KINDS), -1).T
    return Series("head_kind_share", "1", kinds.steps, KINDS, values, np.ones(values.shape, bool))


def _of_grids(run: Run, judge: Callable[[Floats], Floats]) -> Series:
    """Apply a function from the maps of a layer (H, q, k) to a number per head, NaN for unknown, to every sampled layer."""
    found: Series = empty("heads")
    for path in _GRIDS:
        section, _, field = path.partition(".*.")
        found = filled(found, _by_step(run.grid(section, field), judge))
    return found


def _by_step(grids: Grids, judge: Callable[[Floats], Floats]) -> Series:
    found = zip(grids.steps, grids.labels, grids.values, strict=True)
    rows = [(step, label, judge(maps)) for step, label, maps in found if _are_shares(maps)]
    labels = tuple(dict.fromkeys(f"{label}/head.{head}" for _, label, heads in rows for head in range(len(heads))))
    place = {label: column for column, label in enumerate(labels)}
    steps = np.array(sorted({step for step, _, _ in rows}), np.int64)
    values = np.full((len(steps), len(labels)), np.nan)
    for step, label, heads in rows:
        columns = [place[f"{label}/head.{head}"] for head in range(len(heads))]
        values[np.searchsorted(steps, step), columns] = heads
    return Series("heads", "1", steps, labels, values, ~np.isnan(values))


def _are_shares(maps: Floats, *, rounding: float = 1e-2, most: float = 1.1) -> bool:
    """Tell whether maps are attention after softmax, (H, q, k): a writer may have sampled the scores before it.

    Args:
        maps: As sampled.
        rounding: Of one element.
        most: Sum of a row; 32 elements of one byte each are up to 0.06 off.
    """
    if maps.ndim != 3 or not maps.size:
        return False
    with np.errstate(all="ignore"):
        return not bool(np.any(maps < -rounding) or np.any(maps > 1 + rounding) or np.any(maps.sum(axis=2) > most))


def _nearest(maps: Floats) -> Floats:
    flat = maps.reshape(len(maps), -1)
    with np.errstate(all="ignore"):
        unit = flat / np.linalg.norm(flat, axis=1, keepdims=True)
    cosine = unit @ unit.T
    np.fill_diagonal(cosine, -np.inf)
    return np.where(np.isneginf(nearest := cosine.max(axis=1)), np.nan, nearest)


def _kinds(maps: Floats, *, mass: float = 0.5, uniform: float = 0.95, farthest: int = 8) -> Floats:
    """Return the place among KINDS of each head, from its maps (H, q, k); NaN where a map is not finite or empty.

    Args:
        maps: Attention after softmax, sampled or whole.
        mass: Share that makes a head follow one place (Voita et al. 2019), the recorder's own.
        uniform: Normalized entropy of a uniform head, the recorder's own.
        farthest: Distance that still is a position, in samples.
    """
    shares, rows, even = _even(maps)
    index = np.flatnonzero(rows)
    placed = _mass_at(shares, index + np.arange(-farthest, farthest + 1)[:, None])
    near = np.delete(placed, farthest, axis=1).max(axis=1)
    kinds = np.select(
        [np.isnan(even), even > uniform, shares[:, :, 0].mean(axis=1) > mass, placed[:, farthest] > mass, near > mass],
        [np.nan, 3.0, 1.0, 2.0, 0.0], 4.0,
    )  # fmt: skip
    return np.asarray(kinds) if rows.any() else np.full(len(maps), np.nan)


def _evenness(maps: Floats) -> Floats:
    """Return the normalized entropy of each head's map (H, q, k), NaN where it is not finite or empty."""
    return _even(maps)[2]


def _even(maps: Floats) -> tuple[Floats, Mask, Floats]:
    """Return the maps with rows that sum to 1, of queries that see two keys or more; which queries; the evenness of each head."""
    _, queries, keys = maps.shape
    seen = _all_seen(queries, keys)
    if queries == keys and not maps[:, ~_earlier(keys)].any():
        seen = _earlier(keys)
    rows: Mask = seen.sum(axis=1) > 1
    with np.errstate(all="ignore"):
        shares = (maps / maps.sum(axis=2, keepdims=True))[:, rows]  # (H, q, k)
        terms = np.where(shares > 0, shares * np.log(shares), np.where(np.isnan(shares), np.nan, 0.0))
        even = (-terms.sum(axis=2) / np.log(seen[rows].sum(axis=1))).mean(axis=1) if rows.any() else np.full(len(maps), np.nan)
    return shares, rows, even


@cache
def _all_seen(queries: int, keys: int) -> Mask:
    return np.ones((queries, keys), bool)


@cache
def _earlier(size: int) -> Mask:
    """Return which keys a query of a causal map sees: itself and those before."""
    return np.tril(_all_seen(size, size))


def _mass_at(shares: Floats, columns: Steps) -> Floats:
    """Return the mean share of some columns, one per query, over the queries that have it.

    Args:
        shares: Shape (H, q, k).
        columns: Shape (n, q); outside 0 to k - 1: the query has none.

    Returns:
        Shape (H, n).
    """
    inside = (columns >= 0) & (columns < shares.shape[2])
    taken = shares[:, np.arange(columns.shape[1]), np.where(inside, columns, 0)]
    return np.asarray(np.where(inside, taken, 0.0).sum(axis=2) / np.maximum(1, inside.sum(axis=1)))
