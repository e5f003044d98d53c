"""What maps of attention show of their heads: many maps of one shape at once, shape (N, H, q, k)."""

from functools import cache
from typing import NamedTuple, get_args

import numpy as np

from ckaudit.contract.schema.checkpoint import HeadKind
from ckaudit.run.series import Floats, Mask, Steps

KINDS: tuple[HeadKind, ...] = get_args(HeadKind)
UNIFORM_ABOVE = 0.95
"""Normalized entropy of a uniform head, the recorder's own bound."""
SMALLEST = float(np.finfo(np.float64).tiny)


class Measures(NamedTuple):
    """Numbers of each head of each map, shape (N, H), NaN where a map does not say.

    Attributes:
        nearest: Cosine to the most similar other head.
        kinds: Place among KINDS.
        evenness: Normalized entropy.
        later: Share of later keys, of square maps.
        widest: Entropy of an even head of the sampled keys.
        entropy: Entropy of a map whose rows hold nearly all of the attention.
    """

    nearest: Floats
    kinds: Floats
    evenness: Floats
    later: Floats
    widest: Floats
    entropy: Floats


def are_shares(maps: Floats, *, rounding: float = 1e-2, max_row_sum: float = 1.1) -> Mask:
    """Tell which maps are attention after softmax, shape (N,): a writer may have sampled the scores before it.

    Args:
        maps: As sampled.
        rounding: Of one element.
        max_row_sum: Sum of a row; 32 elements of one byte each are up to 0.06 off.
    """
    outside = ((maps < -rounding) | (maps > 1 + rounding)).any(axis=(1, 2, 3))
    return np.asarray(~outside & ~(maps.sum(axis=3) > max_row_sum).any(axis=(1, 2)))


def are_causal(maps: Floats) -> Mask:
    """Tell in which maps no query of any head sees a later key, shape (N,)."""
    queries, keys = maps.shape[2:]
    if queries != keys:
        return np.zeros(len(maps), bool)
    return np.asarray(~((maps != 0) & ~earlier(keys)).any(axis=(1, 2, 3)))


def measure(maps: Floats, *, causal: bool) -> Measures:
    """Return what maps show.

    Args:
        maps: Attention after softmax, sampled or whole.
        causal: Whether no query sees a later key.
    """
    queries, keys = maps.shape[2:]
    seen = earlier(keys) if causal else _all_seen(queries, keys)
    sums = maps.sum(axis=3)
    shares = maps / sums[..., None]
    even, kinds = _evenness_and_kinds(shares, seen)
    widest = np.full(sums.shape[:2], float(np.log(seen.sum(axis=1)).mean()))
    return Measures(_nearest(maps), kinds, even, _later(shares, causal=causal), widest, _entropy(maps, sums))


@cache
def earlier(size: int) -> Mask:
    """Return which keys a query of a causal map sees: itself and those before."""
    return np.tril(_all_seen(size, size))


@cache
def _all_seen(queries: int, keys: int) -> Mask:
    return np.ones((queries, keys), bool)


def _evenness_and_kinds(shares: Floats, seen: Mask) -> tuple[Floats, Floats]:
    """Return normalized entropy and kind of each head, from the queries that see two keys or more."""
    rows = np.flatnonzero(seen.sum(axis=1) > 1)
    if not len(rows):
        nothing = np.full(shares.shape[:2], np.nan)
        return nothing, nothing
    shares = shares[:, :, rows[0] :]  # those that see too few are the first
    even = (-_terms(shares).sum(axis=3) / np.log(seen[rows].sum(axis=1))).mean(axis=2)
    return even, _kinds(shares, rows, even)


def _terms(shares: Floats) -> Floats:
    """Return p log p of each share, 0 of none."""
    return np.asarray(np.maximum(shares, 0.0) * np.log(np.maximum(shares, SMALLEST)))


def _entropy(maps: Floats, sums: Floats, *, whole: float = 0.99) -> Floats:
    entropy = np.full(sums.shape[:2], np.nan)
    complete = (sums >= whole).all(axis=2)
    entropy[complete] = -_terms(maps[complete]).sum(axis=2).mean(axis=1)
    return entropy


def _nearest(maps: Floats) -> Floats:
    flat = maps.reshape(*maps.shape[:2], -1)
    unit = flat / np.linalg.norm(flat, axis=2, keepdims=True)
    cosine = unit @ unit.transpose(0, 2, 1)
    heads = np.arange(maps.shape[1])
    cosine[:, heads, heads] = -np.inf
    nearest = cosine.max(axis=2)
    return np.where(np.isneginf(nearest), np.nan, nearest)


def _kinds(shares: Floats, rows: Steps, even: Floats, *, mass: float = 0.5, farthest: int = 8) -> Floats:
    """Return the place among KINDS of each head.

    Args:
        shares: Of the queries that count, shape (N, H, q, k), rows that sum to 1.
        rows: Which queries these are.
        even: Normalized entropy of each head.
        mass: Share that makes a head follow one place (Voita et al. 2019), the recorder's own.
        farthest: Distance that still is a position, in samples.
    """
    placed = _mass_at(shares, rows + np.arange(-farthest, farthest + 1)[:, None])
    near = np.delete(placed, farthest, axis=2).max(axis=2)
    first = shares[..., 0].mean(axis=2)
    return np.select(
        [np.isnan(even), even > UNIFORM_ABOVE, first > mass, placed[..., farthest] > mass, near > mass],
        [np.nan, 3.0, 1.0, 2.0, 0.0],
        4.0,
    )


def _mass_at(shares: Floats, columns: Steps) -> Floats:
    """Return the mean share of some columns, one per query, over the queries that have it, shape (N, H, n).

    Args:
        shares: Shape (N, H, q, k).
        columns: Shape (n, q); outside 0 to k - 1: the query has none.
    """
    queries, keys = shares.shape[2:]
    inside = (columns >= 0) & (columns < keys)
    place = np.arange(queries) * keys + np.where(inside, columns, 0)
    taken = shares.reshape(*shares.shape[:2], -1).take(place, axis=2)
    return np.asarray(np.where(inside, taken, 0.0).sum(axis=3) / np.maximum(1, inside.sum(axis=1)))


def _later(shares: Floats, *, causal: bool) -> Floats:
    queries, keys = shares.shape[2:]
    if queries != keys or keys < 2:
        return np.full(shares.shape[:2], np.nan)
    unknown = 0 * shares.sum(axis=(2, 3))
    return np.asarray(unknown if causal else np.where(earlier(keys), 0.0, shares).sum(axis=3).mean(axis=2) + unknown)
