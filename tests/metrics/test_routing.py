"""Expert routing against slow loops and the ends of its ranges."""

import math

import numpy as np

from ckaudit.metrics.routing import expert_entropy, expert_imbalance, moe_drop_rate, moe_load_balance_loss, moe_util_entropy
from tests.metrics.samples import NAN, cells, close, run_of

ROWS = {
    10: {"a": [3, 1, 0, 4], "b": [2, 2, 2, 2]},
    20: {"a": [8, 0, 0, 0], "b": [5, 1, 1, 1]},
    30: {"a": [0, 0, 0, 0], "b": [1, 2, 3, 4]},
}


def routed():
    return {
        step: {f"{layer}/expert.{index}": float(count) for layer, counts in row.items() for index, count in enumerate(counts)}
        for step, row in ROWS.items()
    }


def entropy(counts):
    shares = [count / sum(counts) for count in counts if count]
    return -sum(share * math.log(share) for share in shares) / math.log(len(counts))


def spread(counts):
    return float(np.std(counts) / np.mean(counts))


def by_hand(function):
    return {(step, layer): function(counts) for step, row in ROWS.items() for layer, counts in row.items() if sum(counts)}


def test_entropy_and_variation_of_each_layer():
    run = run_of({"moe.*.counts": routed()})
    assert close(cells(expert_entropy(run)) | {(20, "a"): 0.0}, by_hand(entropy) | {(20, "a"): 0.0})
    assert abs(cells(expert_entropy(run))[20, "a"]) < 1e-12
    assert close(cells(expert_imbalance(run)), by_hand(spread) | {(10, "b"): 0.0})
    assert cells(expert_imbalance(run))[20, "a"] == math.sqrt(3)


def test_the_least_even_layer_counts_and_the_log_fills():
    found = cells(moe_util_entropy(run_of({"moe.*.counts": routed()}, {"moe_util_entropy": {25: {"x": 0.5}}})))
    expected = {10: entropy(ROWS[10]["a"]), 20: 0.0, 25: 0.5, 30: entropy(ROWS[30]["b"])}
    assert np.allclose([found[step, "moe_util_entropy"] for step in expected], list(expected.values()), atol=1e-12)


def test_dropped_over_routed_of_all_layers_that_counted_both():
    dropped = {10: {"a": 1.0, "b": 3.0}, 20: {"a": 2.0}, 30: {"a": NAN}}
    asked = {10: {"a": 100.0, "b": 100.0}, 20: {"a": 50.0, "b": 100.0}, 30: {"a": 100.0}}
    run = run_of({"moe.*.dropped": dropped, "moe.*.routed": asked}, {"moe_drop_rate": {20: {"x": 9.0}, 30: {"x": 7.0}}})
    assert close(
        cells(moe_drop_rate(run)), {(step, "moe_drop_rate"): value for step, value in {10: 2.0, 20: 4.0, 30: 7.0}.items()}
    )


def test_load_balance_loss_is_that_of_counts_and_probabilities():
    rng = np.random.default_rng(0)
    shares = {step: {layer: rng.dirichlet(np.ones(4)) for layer in row} for step, row in ROWS.items()}
    expected = {}
    for step, row in ROWS.items():
        losses = [
            4 * sum(count * share for count, share in zip(counts, shares[step][layer], strict=True)) / sum(counts)
            for layer, counts in row.items()
            if sum(counts)
        ]
        expected[step, "moe_load_balance_loss"] = sum(losses) / len(losses)
    probabilities = {
        step: {f"{layer}/expert.{index}": value for layer, values in row.items() for index, value in enumerate(values)}
        for step, row in shares.items()
    }
    sections = {"moe.*.counts": routed(), "moe.*.router_probability": probabilities}
    assert close(cells(moe_load_balance_loss(run_of(sections))), expected)
    # What was recorded of a layer counts only where it cannot be made.
    sections["moe.*.aux_loss"] = {10: {"a": 9.0, "b": 9.0}, 20: {"a": 9.0}, 30: {"a": 3.0}}
    found = cells(moe_load_balance_loss(run_of(sections)))
    last = (30, "moe_load_balance_loss")
    assert close(found, expected | {last: (expected[last] + 3.0) / 2})


def test_load_balance_loss_is_the_mean_over_layers():
    run = run_of({"moe.*.aux_loss": {10: {"a": 1.0, "b": 1.5}}}, {"moe_load_balance_loss": {10: {"x": 9.0}, 11: {"x": 1.1}}})
    assert cells(moe_load_balance_loss(run)) == {(10, "moe_load_balance_loss"): 1.25, (11, "moe_load_balance_loss"): 1.1}
