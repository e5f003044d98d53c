"""The forward pass: moments of module outputs, attention of each head, and mixtures of experts."""

import math
from collections.abc import Iterator
from itertools import repeat
from typing import Any

from msgspec import UNSET

from ckaudit.contract import contradictions as kinds
from ckaudit.contract.checks import CheckInput, check
from ckaudit.contract.schema.checkpoint import AttentionStats, MoeStats
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


@check(
    kinds.RMS_AND_MOMENTS,
    kinds.MEAN_ABS_RANGE,
    reads=tuple(f"activations.*.{name}" for name in ("mean", "std", "rms", "mean_abs")),
)
def root_mean_square(subject: CheckInput, *, precision: float = 2e-2) -> Iterator[Finding]:
    r"""|mean| <= mean_abs <= rms, and the mean square is the square of the mean plus the variance.

    $$\text{rms}^2 = \mu^2 + \sigma^2$$

    Args:
        subject: The checkpoint.
        precision: Relative error: three numbers of bfloat16 at 0.4 %, and sums of float32.
    """
    table = subject.table("activations")
    for name, mean, std, rms in table.rows("mean", "std", "rms"):
        full = math.hypot(mean, std)
        if abs(rms - full) > precision * full:
            yield subject.find(kinds.RMS_AND_MOMENTS, ("activations", name, "rms"), f"{full:.6g}, by mean and std", rms)
    lower, upper = table.numbers("mean", 0.0), table.numbers("rms", math.inf)
    for name, low, value, high in zip(table.names, lower, table.numbers("mean_abs", math.nan), upper, strict=True):
        if value < abs(low) * (1 - precision) or value > high * (1 + precision):
            expected = f"between |mean| {abs(low):.6g} and rms {high:.6g}"
            yield subject.find(kinds.MEAN_ABS_RANGE, ("activations", name, "mean_abs"), expected, value)


@check(kinds.P50_ABOVE_P99, reads=("activations.*.p50", "activations.*.p99"))
def percentiles(subject: CheckInput, *, rounding: float = 1e-2) -> Iterator[Finding]:
    """The median is at most the 99th percentile.

    Args:
        subject: The checkpoint.
        rounding: Relative error of numbers with four digits.
    """
    for name, median, high in subject.table("activations").rows("p50", "p99"):
        if median > high * (1 + rounding):
            yield subject.find(kinds.P50_ABOVE_P99, ("activations", name, "p50"), f"at most p99 {high:.6g}", median)


@check(
    kinds.DEAD_ABOVE_UNITS,
    kinds.UNITS_AND_SHAPE,
    kinds.NONFINITE_ABOVE_NUMEL,
    kinds.SAMPLED_ABOVE_NUMEL,
    reads=tuple(f"activations.*.{name}" for name in ("dead_units", "units", "shape", "nonfinite_count", "sampled")),
)
def units(subject: CheckInput) -> Iterator[Finding]:
    """Dead units are at most all units, which are the last size of the shape."""
    table = subject.table("activations")
    for name, dead, count in table.rows("dead_units", "units"):
        if dead > count:
            yield subject.find(kinds.DEAD_ABOVE_UNITS, ("activations", name, "dead_units"), f"at most units {count}", dead)
    for name, count, shape in table.rows("units", "shape"):
        if shape and shape[-1] != count:
            yield subject.find(kinds.UNITS_AND_SHAPE, ("activations", name, "units"), f"{shape[-1]}, the last of {shape}", count)
    for name, count, shape in table.rows("nonfinite_count", "shape"):
        if count > math.prod(shape):
            place = ("activations", name, "nonfinite_count")
            yield subject.find(kinds.NONFINITE_ABOVE_NUMEL, place, f"at most {math.prod(shape)} elements", count)
    for name, count, shape in table.rows("sampled", "shape"):
        if count > math.prod(shape):
            place = ("activations", name, "sampled")
            yield subject.find(kinds.SAMPLED_ABOVE_NUMEL, place, f"at most {math.prod(shape)} elements", count)


@check(kinds.HEADS_DISAGREE, kinds.KV_HEADS, reads=tuple(f"attention.*.{name}" for name in (*ARRAYS, "heads", "kv_heads")))
def heads(subject: CheckInput) -> Iterator[Finding]:
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


def _layers(subject: CheckInput) -> list[tuple[str, AttentionStats]]:
    """Return name and statistics of each layer."""
    return list(subject.entries("attention").items())


@check(
    kinds.ENTROPY_RANGE,
    kinds.ENTROPY_AND_NORMALIZED,
    kinds.ENTROPY_AND_MAXIMUM,
    reads=tuple(f"attention.*.{name}" for name in (*ARRAYS[:2], "max_attn_per_head", "keys")),
)
def entropy(subject: CheckInput, *, precision: float = 2e-2) -> Iterator[Finding]:
    r"""Entropies are within the bounds of their definition.

    $$0 \le H \le \log K, \qquad \frac{H}{\log K} \le H_\text{norm}, \qquad e^{-H} \le \max p$$

    The second holds because no query sees more than K keys. The third holds because some query has at most the mean entropy, and
    its largest probability is at least exp(-H) (Cover & Thomas 2006, theorem 2.6.4 and the min-entropy bound).

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
    """Tell with a fast test whether all entropies of a layer are within the bounds."""
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


def _entropy_of(subject: CheckInput, name: str, layer: AttentionStats, limit: float, precision: float) -> Iterator[Finding]:
    """Yield the first violation of a layer that exceeds the precision, given that its bounds do not hold exactly."""
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


@check(kinds.MOE_COUNTS, reads=("moe.*.counts", "moe.*.routed", "moe.*.dropped"))
def counts(subject: CheckInput, *, rounding: float = 1e-3) -> Iterator[Finding]:
    """Experts receive all routed assignments, or all that are not dropped; at most all routed ones are dropped.

    Args:
        subject: The checkpoint.
        rounding: Relative error: counts averaged over micro-batches or ranks may be rounded to four digits.
    """
    for name, layer in (subject.document.moe or {}).items():
        routed, dropped = layer.routed, layer.dropped
        if not isinstance(routed, float):
            continue
        slack, lost = rounding * routed, dropped if isinstance(dropped, float) else None
        if lost is not None and lost > routed + slack:
            yield subject.find(kinds.MOE_COUNTS, ("moe", name, "dropped"), f"at most routed {routed:.6g}", lost)
        elif received := _numbers(layer.counts):
            total = sum(received)
            min_total = 0.0 if lost is None else routed - lost
            if not min_total - slack <= total <= routed + slack:
                expected = f"{min_total:.6g} to {routed:.6g} in sum"
                yield subject.find(kinds.MOE_COUNTS, ("moe", name, "counts"), expected, total)


@check(kinds.ROUTER_PROBABILITY, reads=("moe.*.router_probability", "moe.*.counts"))
def probabilities(subject: CheckInput, *, rounding: float = 2e-2) -> Iterator[Finding]:
    """A router gives each counted expert a probability, and they sum to 1.

    Args:
        subject: The checkpoint.
        rounding: Error of the sum: probabilities in bfloat16 are good to 0.4 % each.
    """
    for name, layer in (subject.document.moe or {}).items():
        place = ("moe", name, "router_probability")
        if layer.router_probability and layer.counts and len(layer.router_probability) != len(layer.counts):
            wanted = f"{len(layer.counts)} numbers, as many as counts"
            yield subject.find(kinds.ROUTER_PROBABILITY, place, wanted, f"{len(layer.router_probability)} numbers")
        elif (shares := _numbers(layer.router_probability)) and abs(sum(shares) - 1) > rounding:
            yield subject.find(kinds.ROUTER_PROBABILITY, place, "1 in sum", sum(shares))


@check(
    kinds.NEGATIVE,
    kinds.LOAD_BALANCE,
    reads=("moe.*.aux_loss", "moe.*.counts", "moe.*.router_probability", "moe.*.routed", "moe.*.dropped"),
)
def load_balance(subject: CheckInput, *, precision: float = 5e-2) -> Iterator[Finding]:
    r"""A load-balance loss is a sum of products of shares, at least 0 (Fedus et al. 2021, equation 4).

    $$E \sum_i f_i P_i$$

    With k experts per token, some trainers count shares of tokens in f, which makes it k times as large.

    Args:
        subject: The checkpoint.
        precision: Relative error: a loss in bfloat16 is good to 0.4 %, and so is each of its factors.
    """
    for name, layer in (subject.document.moe or {}).items():
        value, place = layer.aux_loss, ("moe", name, "aux_loss")
        if not isinstance(value, float):
            continue
        if value < 0:
            yield subject.find(kinds.NEGATIVE, place, "at least 0", value)
        elif bounds := _load_balance(layer):
            low, high = bounds
            if not low * (1 - precision) <= value <= high * (1 + precision):
                yield subject.find(kinds.LOAD_BALANCE, place, f"between {low:.6g} and {high:.6g}", value)


def _load_balance(layer: MoeStats) -> tuple[float, float] | None:
    """Return the loss with shares of assignments, and its upper bound with shares of tokens; None if unknown.

    The experts of a token differ, so no expert has more assignments than there are tokens, which bounds k.
    """
    received, shares = _numbers(layer.counts), _numbers(layer.router_probability)
    total = sum(received)
    if not total or len(received) != len(shares):
        return None
    if isinstance(layer.dropped, float) and layer.dropped > 0 and layer.routed != total:  # counted after drops
        return None
    loss = len(received) * sum(count * share for count, share in zip(received, shares, strict=True)) / total
    return loss, loss * total / max(received)


def _numbers(values: Any) -> list[float]:
    """Return a list of finite numbers; an empty one if it is not recorded, or if an element is a word."""
    return [] if not values or any(isinstance(value, str) for value in values) else values
