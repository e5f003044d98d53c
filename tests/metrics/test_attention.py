import math

import numpy as np
import pytest

from ckaudit.metrics.attention import (
    attention_entropy_left,
    attention_evenness,
    attn_entropy,
    dead_head_fraction,
    dead_heads,
    max_attention,
    max_attn_logit,
    min_normalized_entropy,
    normalized_attention_entropy,
    sharp_share,
    uniform_head_fraction,
    upper_triangle_mass,
)
from tests.metrics.samples import NAN, cells, close, random_run, rows_of, run_of

ENTROPY = "attention.*.entropy_per_head"
PLAIN = {
    attn_entropy: "entropy_per_head",
    max_attn_logit: "max_logit_per_head",
    max_attention: "max_attn_per_head",
    sharp_share: "sharp_share_per_head",
    upper_triangle_mass: "upper_triangle_mass_per_head",
}


@pytest.mark.parametrize("metric", PLAIN, ids=lambda metric: metric.name)
def test_plain_metrics_are_what_was_recorded(metric):
    run = random_run()
    heads = metric(run).only(lambda label: label != metric.name)
    assert close(cells(heads), rows_of(run, f"attention.*.{PLAIN[metric]}"))


@pytest.mark.parametrize(("metric", "scalar"), [(attn_entropy, "attn_entropy"), (max_attn_logit, "max_attn_logit")])
def test_the_log_stands_in_where_no_head_was_recorded(metric, scalar):
    assert cells(metric(run_of(scalars={scalar: [2.0, NAN, None]})))[1, scalar] == 2.0
    assert len(cells(metric(run_of(scalars={scalar: [2.0, NAN, None]})))) == 2


def uniform_entropy(keys, *, causal):
    """Return the mean entropy of a head that looks at all its keys alike, from its attention matrix."""
    entropies = []
    for query in range(keys):
        seen = query + 1 if causal else keys
        attention = np.full(seen, 1 / seen)
        entropies.append(-np.sum(attention * np.log(attention)))
    return float(np.mean(entropies))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("keys", [2, 17, 512])
def test_a_uniform_head_has_normalized_entropy_one(keys, causal):
    run = run_of(
        {
            ENTROPY: {1: {"l/head.0": uniform_entropy(keys, causal=causal)}},
            "attention.*.keys": {1: {"l": keys}},
            "attention.*.causal": {1: {"l": float(causal)}},
        }
    )
    assert cells(normalized_attention_entropy(run)) == {(1, "l/head.0"): pytest.approx(1.0)}


def test_recorded_normalized_entropy_counts_and_keys_fill_the_rest():
    run = run_of(
        {
            "attention.*.normalized_entropy_per_head": {1: {"l/head.0": 0.9}},
            ENTROPY: {1: {"l/head.0": 0.1, "l/head.1": math.log(4)}, 2: {"l/head.0": NAN, "m/head.0": 1.0, "one/head.0": 0.0}},
            "attention.*.keys": {1: {"l": 16, "one": 1}},
        }
    )
    assert close(cells(normalized_attention_entropy(run)), {(1, "l/head.0"): 0.9, (1, "l/head.1"): 0.5, (2, "l/head.0"): NAN})


def test_the_sharpest_head_and_the_share_of_dead_ones_over_all_layers_and_vital_signs():
    sections = {
        "attention.*.normalized_entropy_per_head": {10: {"layer.0/head.0": 0.5, "layer.1/head.0": 0.2}},
        "attention.*.sharp_share_per_head": {10: {"layer.0/head.0": 0.995, "layer.0/head.1": 0.98, "layer.1/head.0": 1.0}},
    }
    scalars = {
        "min_normalized_entropy": {25: {"min_normalized_entropy": 0.1}},
        "dead_head_fraction": {50: {"dead_head_fraction": 0.25}},
    }
    run = run_of(sections=sections, scalars=scalars)
    assert close(cells(min_normalized_entropy(run)), {(10, "min_normalized_entropy"): 0.2, (25, "min_normalized_entropy"): 0.1})
    assert close(cells(dead_head_fraction(run)), {(10, "dead_head_fraction"): 2 / 3, (50, "dead_head_fraction"): 0.25})


def test_dead_and_uniform_heads_are_counted():
    sharp = {10: {"a/head.0": 0.995, "a/head.1": 0.99, "b/head.0": 1.0}, 20: {"a/head.0": NAN, "a/head.1": 1.0}}
    even = {10: {"a/head.0": 0.96, "a/head.1": 0.95, "b/head.0": 0.2, "b/head.1": 1.0}}
    run = run_of({"attention.*.sharp_share_per_head": sharp, "attention.*.normalized_entropy_per_head": even})
    assert close(cells(dead_heads(run)), {(10, "dead_heads"): 2.0, (20, "dead_heads"): NAN})
    assert cells(uniform_head_fraction(run)) == {(10, "uniform_head_fraction"): 0.5}


def test_what_is_left_is_over_the_widest_until_then():
    run = run_of({ENTROPY: {step: {"l/head.0": value} for step, value in zip((1, 2, 3, 4), (1.0, 2.0, 0.5, 1.5), strict=True)}})
    assert list(cells(attention_entropy_left(run)).values()) == [1.0, 1.0, 0.25, 0.75]
    assert list(cells(attention_entropy_left(run_of(scalars={"attn_entropy": [2.2, 1.6, 0.1]}))).values()) == [
        1.0,
        pytest.approx(1.6 / 2.2),
        pytest.approx(0.1 / 2.2),
    ]


def of_heads(entropies, largest):
    """Return a run of one checkpoint with the entropy and the largest weight of each head of a layer."""
    fields = {ENTROPY: entropies, "attention.*.max_attn_per_head": largest}
    return run_of({path: {1: {f"l/head.{head}": value for head, value in enumerate(row)}} for path, row in fields.items()})


def test_evenness_without_a_count_of_keys():
    keys = 64
    peaked = np.array([0.5] + [0.5 / (keys - 1)] * (keys - 1))
    entropy = float(-(peaked * np.log(peaked)).sum())
    found = cells(attention_evenness(of_heads([math.log(keys), entropy], [1 / keys, 0.5])))
    assert found == {(1, "l/head.0"): 1.0, (1, "l/head.1"): pytest.approx(math.log(2) / entropy)}
    causal = uniform_entropy(keys, causal=True)
    assert list(cells(attention_evenness(of_heads([causal, causal], [1.0, 1.0]))).values()) == [1.0, 1.0]
    assert max(cells(attention_evenness(of_heads([causal, 0.8 * causal], [1.0, 1.0]))).values()) < 0.95
    assert not cells(attention_evenness(of_heads([causal], [1.0]))), "one head alone may have learnt this very entropy"
