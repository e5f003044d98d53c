"""Experts of a checkpoint: honest routing in every convention is no contradiction, whatever was rounded."""

import json

import numpy as np
import pytest

from ckaudit.contract.check import check_checkpoint


def found(**layer):
    document = {"schema_version": "ck.analysis.v1", "step": 1, "moe": {"layer.0": layer}}
    return {each.code for each in check_checkpoint(json.dumps(document).encode(), "x.json").findings}


def routed(choices, *, skew, tokens=500, experts=8):
    """Route tokens one by one, and return counts, mean probabilities, and the loss with shares of assignments."""
    logits = np.random.default_rng(0).normal(0, 1, (tokens, experts)) + skew * (np.arange(experts) == 3)
    counts, mean = [0.0] * experts, [0.0] * experts
    for token in logits:
        weights = np.exp(token) / np.exp(token).sum()
        mean = [share + weight / tokens for share, weight in zip(mean, weights.tolist(), strict=True)]
        for expert in np.argsort(-token)[:choices]:
            counts[expert] += 1.0
    loss = experts * sum(count * share for count, share in zip(counts, mean, strict=True)) / (tokens * choices)
    return counts, mean, loss


@pytest.mark.parametrize("digits", [3, 17])
@pytest.mark.parametrize("skew", [0.0, 1.0, 9.0])
@pytest.mark.parametrize("choices", [1, 2, 4])
def test_a_loss_of_assignments_or_of_tokens_is_no_contradiction(choices, skew, digits):
    counts, mean, loss = routed(choices, skew=skew)
    shares = [float(f"{share:.{digits}g}") for share in mean]
    layer = {"counts": counts, "router_probability": shares, "routed": sum(counts)}
    assert found(**layer, aux_loss=loss) == found(**layer, aux_loss=choices * loss) == set()
    assert found(**layer, aux_loss=0.01 * loss) == found(**layer, aux_loss=20 * loss) == {"VAL088"}


def test_counts_without_what_was_dropped_do_not_tell_the_loss():
    counts, mean, loss = routed(1, skew=9.0)
    kept = [min(count, 100.0) for count in counts]
    layer = {"counts": kept, "router_probability": mean, "routed": sum(counts), "dropped": sum(counts) - sum(kept)}
    assert layer["dropped"] > 0
    assert found(**layer, aux_loss=loss) == set()


def test_what_is_not_known_is_not_judged():
    counts, mean, _ = routed(2, skew=1.0)
    assert found(counts=counts, aux_loss=99.0) == set()
    assert found(router_probability=mean, aux_loss=99.0) == set()
    assert found(counts=[0.0] * 8, router_probability=mean, aux_loss=0.0) == set()
    assert found(counts=counts, router_probability=["NaN", *mean[1:]], aux_loss="NaN") == set()


@pytest.mark.parametrize("wrong", [[0.2] * 4, [0.5, 0.5, 0.5, 0.5], [0.5, 0.5], [1.0, 0.0, 0.0, 0.0, 0.0]])
def test_probabilities_are_a_share_for_each_expert(wrong):
    assert found(counts=[5.0, 5.0, 5.0, 5.0], router_probability=wrong) == {"VAL087"}
