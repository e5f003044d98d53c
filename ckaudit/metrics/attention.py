"""Attention: entropy, logits and causality of each head."""

import math
from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.heads import sampled_evenness
from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled, together
from ckaudit.metrics.reductions import across
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Mask, Series, at, single


@metric(unit="nats", reads=["attention.*.entropy_per_head", "attn_entropy"], source="catalogue M20, F9", memory=1, worst="low")
def attn_entropy(run: Run) -> Series:
    r"""Entropy of each head's attention, mean over queries.

    $$H = -\tfrac{1}{|Q|} \sum_{q} \sum_k \alpha_{q,k} \log \alpha_{q,k}, \qquad 0 \le H \le \log K$$

    Shape (C, H): checkpoints by query heads, "layer.0/head.3". The log's attn_entropy is used if no head is recorded.
    """
    return run.series("attention", "entropy_per_head") or run.scalar("attn_entropy")


@metric(
    unit="1",
    reads=["attention.*.normalized_entropy_per_head", "attention.*.entropy_per_head", "attention.*.keys", "attention.*.causal"],
    source="F9; Zhai et al. 2023, section 3",
    worst="low",
)
def normalized_attention_entropy(run: Run) -> Series:
    r"""Entropy of each head's attention, relative to that of uniform attention.

    $$h = \tfrac{1}{|Q|} \sum_q H_q / \log K_q \;\approx\; H / U, \qquad U = \log K, \quad U_{causal} = \tfrac1K \log K!$$

    Shape (C, H): checkpoints by query heads, 0 to 1; 1 is uniform. The approximation is used if only the entropy and the number
    of keys are recorded; it is exact for a uniform head. The mean over causal queries of log k is log(K!)/K. Not recorded if
    neither form is available, nor for a single key.
    """
    series = run.series("attention", "normalized_entropy_per_head")
    entropy = run.series("attention", "entropy_per_head")
    if series.recorded.all() and series.labels == entropy.labels and len(series.steps) == len(entropy.steps):
        return series
    # Entropy of a uniform head; NaN if the number of keys is unknown.
    keys, causal = run.series("attention", "keys"), run.series("attention", "causal")
    count, masked = at(keys, entropy.steps).values, at(causal, entropy.steps).values
    largest = np.full(entropy.values.shape, np.nan)
    for column, label in enumerate(entropy.labels):
        layer = label.rpartition("/")[0]
        if layer not in keys.places:
            continue
        counted = count[:, keys.places[layer]]
        hidden = masked[:, causal.places[layer]] == 1 if layer in causal.places else np.zeros(len(counted), bool)
        with np.errstate(divide="ignore"):
            largest[:, column] = np.where(hidden, _mean_log(counted), np.log(counted))
    known = entropy.recorded & (largest > 0)
    with np.errstate(all="ignore"):
        normalized = replace(entropy, values=np.where(known, entropy.values / largest, np.nan), recorded=known)
    return filled(series, normalized)


@metric(unit="1", reads=[normalized_attention_entropy, sampled_evenness], source="playbook D2.5 and D3.1", worst="low")
def attention_evenness(run: Run) -> Series:
    r"""How uniformly each head attends to its keys.

    $$h \approx H / \log K$$

    Shape (C, H): checkpoints by query heads, 0 to 1; 1 is uniform. The first of these that is known counts:
    `normalized_attention_entropy`; 1 for a head whose largest weight is below 1 and at most 1.25 times the uniform weight
    exp(-H); the evenness of the sampled map; -log of the largest weight over H, at most 0.9. If none is known, the heads of a
    layer count as uniform while the entropy of each is within a hundredth of the layer's largest so far, and that is the entropy
    of a whole number of keys: heads that have learnt anything differ.
    """
    known = normalized_attention_entropy(run)
    entropy = run.series("attention", "entropy_per_head")
    if known and (known.recorded.all() and set(entropy.labels) <= set(known.labels)):
        return known
    by_largest = _by_largest(entropy, max_attention(run))
    surely = replace(by_largest, recorded=by_largest.recorded & (by_largest.values == 1))
    known = filled(filled(known, surely), filled(sampled_evenness(run), by_largest))
    return filled(known, _by_sameness(entropy))


@metric(unit="1", reads=[attn_entropy, normalized_attention_entropy], source="catalogue M20; SEV1-3", worst="low")
def attention_entropy_left(run: Run) -> Series:
    r"""Entropy of each head's attention, relative to its largest value so far.

    $$r_t = H_t / \max_{s \le t} H_s$$

    Shape (C, H): checkpoints by query heads, or the columns of the log's attn_entropy, 0 to 1. It needs no number of keys: a head
    begins nearly uniform, and a collapse is a fall from there.
    """
    relative = normalized_attention_entropy(run)
    entropy = attn_entropy(run) or relative
    values = np.where(entropy.finite, entropy.values, np.nan)
    widest = np.fmax.accumulate(values, axis=0) if len(values) else values
    known = entropy.finite & (widest > 0)
    with np.errstate(all="ignore"):
        return replace(entropy, values=np.where(known, values / widest, np.nan), recorded=known)


@metric(unit="1", reads=["attention.*.sharp_share_per_head"], source="F10", memory=1)
def sharp_share(run: Run) -> Series:
    r"""Share of each head's queries that attend to fewer than about two keys.

    $$\Pr_{q}(H_q < \log 2)$$

    Shape (C, H): checkpoints by query heads, 0 to 1. The mean entropy does not determine it.
    """
    return run.series("attention", "sharp_share_per_head")


@metric(
    unit="1",
    reads=["attention.*.normalized_entropy_per_head", "min_normalized_entropy"],
    source="F9; Zhai et al. 2023, section 3",
    memory=1,
)
def min_normalized_entropy(run: Run) -> Series:
    r"""Normalized entropy of the sharpest head of all.

    $$\min_{\ell, h} h_{\ell,h}$$

    Shape (T, 1): checkpoints and vital signs, 0 to 1; NaN if that of any head is.
    """
    heads = run.series("attention", "normalized_entropy_per_head")
    return filled(_over_heads(heads, np.min, "min_normalized_entropy"), run.scalar("min_normalized_entropy"))


@metric(unit="1", reads=[sharp_share, "dead_head_fraction"], source="F10", memory=1)
def dead_head_fraction(run: Run, *, dead_above: float = 0.99) -> Series:
    r"""Share of all heads that are dead: nearly every query attends to fewer than about two keys.

    $$\tfrac1H \sum_{\ell,h} \mathbb{1}[\,\Pr_q(H_q < \log 2) > 0.99\,]$$

    Shape (T, 1): checkpoints and vital signs, 0 to 1; NaN if any head's share is.

    Args:
        run: The run.
        dead_above: Share of sharp queries of a dead head, from F10.
    """
    dead = _above(sharp_share(run), dead_above)
    return filled(_over_heads(dead, np.mean, "dead_head_fraction"), run.scalar("dead_head_fraction"))


@metric(unit="heads", reads=[sharp_share], source="F10", memory=1)
def dead_heads(run: Run, *, dead_above: float = 0.99) -> Series:
    r"""Number of dead heads: nearly every query attends to fewer than about two keys.

    $$\sum_{\ell,h} \mathbb{1}[\,\Pr_q(H_q < \log 2) > 0.99\,]$$

    Shape (C, 1): checkpoints; NaN if any head's share is.

    Args:
        run: The run.
        dead_above: Share of sharp queries of a dead head, from F10.
    """
    return _over_heads(_above(sharp_share(run), dead_above), np.sum, "dead_heads")


@metric(unit="1", reads=[attention_evenness], source="playbook D2.5 and D3.1; Zhai et al. 2023")
def uniform_head_fraction(run: Run, *, uniform_above: float = 0.95) -> Series:
    r"""Share of all heads with uniform attention.

    $$\tfrac1H \sum_{\ell,h} \mathbb{1}[\,h_{\ell,h} > 0.95\,]$$

    Shape (C, 1): checkpoints, 0 to 1; NaN if any head's evenness is.

    Args:
        run: The run.
        uniform_above: Evenness of a uniform head, the recorder's own bound.
    """
    return _over_heads(_above(attention_evenness(run), uniform_above), np.mean, "uniform_head_fraction")


def _above(heads: Series, limit: float) -> Series:
    return replace(heads, values=np.where(np.isnan(heads.values), np.nan, heads.values > limit))


def _over_heads(heads: Series, reduce: Callable[..., Floats], name: str) -> Series:
    """Reduce the heads of each step with a recorded head to one column."""
    if not heads:
        return heads
    heads = heads.recorded_rows()
    whole = np.where(heads.recorded, heads.values, np.nan)
    columns = [reduce(row[known]) for row, known in zip(whole, heads.recorded, strict=True)]
    return single(name, heads.unit, heads.steps, np.array(columns)[:, None])


@metric(unit="logit", reads=["attention.*.max_logit_per_head", "max_attn_logit"], source="catalogue M19; Kimi K2 2025")
def max_attn_logit(run: Run) -> Series:
    r"""Largest scaled attention logit of each head, before softmax.

    $$\max_{q,k} \; q^\top k / \sqrt{d}$$

    Shape (C, H): checkpoints by query heads. The log's max_attn_logit is used if no head is recorded. Otherwise it is added where
    it exceeds 1.5 times the largest head so far, because the log may have seen logits between checkpoints.
    """
    heads, logged = run.series("attention", "max_logit_per_head"), run.scalar("max_attn_logit")
    if not heads or not logged:
        return heads or logged
    seen = across(heads, np.nanmax, "seen", "logit")
    largest = replace(seen, values=np.fmax.accumulate(seen.values, axis=0))
    higher = logged.recorded & (logged.values > 1.5 * np.nan_to_num(at(largest, logged.steps).values))
    return filled(heads, replace(logged, values=np.where(higher, logged.values, np.nan), recorded=higher).recorded_rows())


@metric(unit="1", reads=["attention.*.max_attn_per_head"], source="playbook, analysis contract", memory=1)
def max_attention(run: Run) -> Series:
    r"""Largest attention probability of each head, after softmax.

    $$\max_{q,k} \alpha_{q,k} \le 1$$

    Shape (C, H): checkpoints by query heads. A causal head's first query sees one key, so 1 alone says little.
    """
    return run.series("attention", "max_attn_per_head")


@metric(unit="1", reads=["attention.*.upper_triangle_mass_per_head"], source="playbook, broken causal mask", memory=1)
def upper_triangle_mass(run: Run) -> Series:
    r"""Attention that each head's queries give to later keys.

    $$\tfrac{1}{|Q|} \sum_q \sum_{k > q} \alpha_{q,k}$$

    Shape (C, H): checkpoints by query heads, 0 to 1; exactly 0 under a causal mask, and under a prefix mask if the writer leaves
    the prefix out.
    """
    return run.series("attention", "upper_triangle_mass_per_head")


def _by_largest(entropy: Series, largest: Series, *, near: float = 1.25) -> Series:
    """Return the evenness of heads from their largest weight, if that is below 1 and not too small for the entropy."""
    entropy, largest = together(entropy, largest)
    with np.errstate(all="ignore"):
        possible = (largest.values >= 0.9 * np.exp(-entropy.values)) & (largest.values < 0.999) & (entropy.values > 0)
        known = entropy.finite & largest.finite & possible
        even = largest.values <= near * np.exp(-entropy.values)
        values = np.where(even, 1.0, np.minimum(0.9, -np.log(largest.values) / entropy.values))
    return replace(entropy, values=np.where(known, values, np.nan), recorded=known)


def _by_sameness(entropy: Series, *, within: float = 0.01) -> Series:
    """Return 1 for the heads of a layer while all are as uniform as the widest of some number of keys, else at most 0.9."""
    layers = np.array([label.rpartition("/")[0] for label in entropy.labels])
    even = np.full(entropy.values.shape, np.nan)
    for layer in dict.fromkeys(layers.tolist()):
        mine = np.flatnonzero(layers == layer)
        if len(mine) > 1:
            values = np.where(entropy.finite[:, mine], entropy.values[:, mine], np.nan)
            widest = np.fmax.accumulate(np.fmax.reduce(values, axis=1))[:, None]
            with np.errstate(all="ignore"):
                share = np.where(widest > 0, values / widest, 0.0)
            same = (share >= 1 - within).all(axis=1, keepdims=True) & _is_of_whole_keys(widest)
            even[:, mine] = np.where(same, 1.0, np.minimum(share, 0.9))
    known = entropy.finite & np.isfinite(even)
    return replace(entropy, values=np.where(known, even, np.nan), recorded=known)


def _is_of_whole_keys(entropy: Floats, *, precision: float = 1e-3, keys: int = 4096) -> Mask:
    """Return which entropies are those of uniform attention to some number of keys, causal or not."""
    counts = np.arange(2, keys + 1)
    possible = np.sort(np.concatenate([np.log(counts), _mean_log(counts.astype(np.float64))]))
    place = np.clip(np.searchsorted(possible, entropy), 1, len(possible) - 1)
    nearest = np.minimum(np.abs(possible[place] - entropy), np.abs(possible[place - 1] - entropy))
    return np.asarray(nearest <= precision * entropy)


def _mean_log(keys: Floats) -> Floats:
    """Return log(K!)/K, the mean over causal queries of the log of their number of keys."""
    different, which = np.unique(keys, return_inverse=True)
    means = np.array([math.lgamma(count + 1) / count if count > 0 else np.nan for count in different])
    return np.asarray(means[which])
