"""Attention: one number per head in every array, and entropies that their definition allows."""

import math
from collections.abc import Iterator
from itertools import repeat
from typing import Any

from msgspec import UNSET

from ckaudit.contract import contradictions as kinds
from ckaudit.contract.checks import Subject, check
from ckaudit.contract.schema.checkpoint import AttentionStats
from ckaudit.contract.schema.report import Finding

ARRAYS = (
    "entropy_per_head",
    "normalized_entropy_per_head",
    "sharp_share_per_head",
    "max_attn_per_head",
    "max_logit_per_head",
    "upper_triangle_mass_per_head",
    "nearest_similarity_per_head",
    "kind_per_head",
)


@check(kinds.HEADS_DISAGREE, kinds.KV_HEADS, reads=tuple(f"attention.*.{name}" for name in (*ARRAYS, "heads", "kv_heads")))
def heads(subject: Subject) -> Iterator[Finding]:
    """Every array of a layer has one number per query head; key heads divide query heads (Ainslie et al. 2023)."""
    table = subject.table("attention")
    arrays = [name for name in ARRAYS if name in table.columns]
    whole = table.complete_columns("heads", *arrays)
    if whole is None or any(tuple(map(len, column)) != whole[0] for column in whole[1:]):
        for name, layer in _layers(subject):
            lengths = {field: len(values) for field in arrays if (values := getattr(layer, field)) is not UNSET}
            wanted = layer.heads if layer.heads is not UNSET else next(iter(lengths.values()), 0)
            for field, length in lengths.items():
                if length != wanted:
                    yield subject.find(
                        kinds.HEADS_DISAGREE, ("attention", name, field), f"{wanted} numbers, one per head", f"{length} numbers"
                    )
                    break
    for name, queries, keys in table.rows("heads", "kv_heads"):
        if keys == 0 or queries % keys:
            place = ("attention", name, "kv_heads")
            yield subject.find(kinds.KV_HEADS, place, f"a divisor of heads {queries}", keys)


def _layers(subject: Subject) -> list[tuple[str, AttentionStats]]:
    """Return name and statistics of each layer."""
    return list(subject.entries("attention").items())


@check(
    kinds.ENTROPY_RANGE,
    kinds.ENTROPY_AND_NORMALIZED,
    kinds.ENTROPY_AND_MAXIMUM,
    reads=tuple(f"attention.*.{name}" for name in (*ARRAYS[:2], "max_attn_per_head", "keys")),
)
def entropy(subject: Subject, *, precision: float = 2e-2) -> Iterator[Finding]:
    r"""Bounds that the definition of entropy gives.

    $$0 \le H \le \log K, \qquad \frac{H}{\log K} \le H_\text{norm}, \qquad e^{-H} \le \max p$$

    The second holds since no query sees more than K keys; the third since some query has at most the mean entropy, and the
    largest of its probabilities is at least exp(-H) (Cover & Thomas 2006, theorem 2.6.4 and the min-entropy bound).

    Args:
        subject: The checkpoint.
        precision: Relative error: a softmax of bfloat16 has 8 bits, and its entropy sums many of them.
    """
    for name, layer in _layers(subject):
        if layer.entropy_per_head:
            limit = math.log(layer.keys) if layer.keys else math.inf
            if not _plausible(layer, limit):
                yield from _entropy_of(subject, name, layer, limit, precision)


def _plausible(layer: AttentionStats, limit: float) -> bool:
    """Tell whether all entropies of a layer keep the bounds, the quick way."""
    entropies: Any = layer.entropy_per_head
    shares: Any = layer.normalized_entropy_per_head or repeat(1.0)
    maxima: Any = layer.max_attn_per_head or repeat(1.0)
    exp = math.exp
    try:
        for entropy, share, top in zip(entropies, shares, maxima, strict=False):
            if not (0 <= entropy <= limit * share and exp(-entropy) <= top):
                return False
    except TypeError:  # words among the numbers
        return False
    return True


def _entropy_of(subject: Subject, name: str, layer: AttentionStats, limit: float, precision: float) -> Iterator[Finding]:
    """Yield the first violation of a layer whose bounds did not hold exactly, if it is beyond the precision."""
    for head, value in _finite(layer, "entropy_per_head"):
        place = ("attention", name, "entropy_per_head", head)
        if not -precision <= value <= limit * (1 + precision) + precision:
            yield subject.find(kinds.ENTROPY_RANGE, place, f"between 0 and {limit:.6g}, the log of the keys", value)
            return
        share = dict(_finite(layer, "normalized_entropy_per_head")).get(head, math.inf)
        if limit > 0 and value > limit * (share + precision):
            place = ("attention", name, "normalized_entropy_per_head", head)
            yield subject.find(kinds.ENTROPY_AND_NORMALIZED, place, f"at least {value / limit:.6g}, entropy over log keys", share)
            return
        top = dict(_finite(layer, "max_attn_per_head")).get(head)
        if top is not None and top < math.exp(-value) * (1 - precision):
            place = ("attention", name, "max_attn_per_head", head)
            yield subject.find(kinds.ENTROPY_AND_MAXIMUM, place, f"at least {math.exp(-value):.6g}, exp(-entropy)", top)
            return


def _finite(layer: AttentionStats, field: str) -> list[tuple[int, float]]:
    """Return head and value of each finite number of an array."""
    values = getattr(layer, field)
    return [] if values is UNSET else [(head, value) for head, value in enumerate(values) if isinstance(value, float)]
