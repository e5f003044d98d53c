import numpy as np
import pytest

from ckaudit.contract.schema.manifest import TensorFacts
from ckaudit.metrics.movement import (
    decayed_share,
    epsilon_to_gradient,
    lost_update_share,
    movement_rank,
    moving_share,
    spectral_growth,
    step_over_rate,
    weight_decay_to_update,
)
from ckaudit.metrics.replay import replay_first_difference, replay_identical, replay_loss_diff
from ckaudit.run.column_builder import OPTIMIZERS
from tests.metrics.samples import NAN, cells, close, run_of


def test_ranks_against_a_count():
    rng = np.random.default_rng(0)
    rows = {step: {name: float(rng.integers(0, 5)) for name in "abcdef"} for step in (10, 20, 30)}
    rows[20]["c"] = NAN
    del rows[30]["a"]
    expected = {}
    for step, row in rows.items():
        finite = [value for value in row.values() if value == value]
        for name, value in row.items():
            expected[step, name] = 1.0 + sum(other > value for other in finite) if value == value else NAN
    assert close(cells(movement_rank(run_of({"weight_deltas.*.moved": rows}))), expected)


def test_a_few_tensors_that_move_alone_are_a_small_share():
    rows = {10: {"a": 1.0, "b": 1.0, "c": 0.05, "d": 1.2}, 20: {"a": 0.0, "b": 0.0}, 30: {"a": 5.0, "b": NAN, "c": 4.0}}
    assert cells(moving_share(run_of({"weight_deltas.*.moved": rows}))) == {(10, "moving_share"): 0.75, (30, "moving_share"): 1.0}


def test_growth_of_the_spectral_norm_is_that_of_the_drill():
    rows = {0: {"qk": 1.2, "v": 0.0}, 250: {"qk": 6.0, "v": 2.0}, 500: {"qk": 14.0, "v": 3.0, "late": 4.0}}
    found = cells(spectral_growth(run_of({"weights.*.spectral_norm": rows})))
    expected = {(0, "qk"): 1.0, (250, "qk"): 5.0, (500, "qk"): 14.0 / 1.2, (250, "v"): 1.0, (500, "v"): 1.5, (500, "late"): 1.0}
    assert close(found, expected)


def test_steps_are_measured_in_rates_and_only_those_of_matrices():
    shapes = {"w": [2, 8], "v": [4, 16], "bias": [16], "none": [0, 4]}
    moved = {10: {"w": 0.4, "v": 0.8, "bias": 9.0, "none": 0.0}, 20: {"w": 0.8, "none": 0.0}, 30: {"w": 1.0}}
    run = run_of(
        {"weight_deltas.*.norm": moved},
        {"learning_rate": {1: {"a": 0.5, "b": 0.1}, 15: {"a": 0.25}, 25: {"a": 0.0, "b": 0.0}}},
        tensors={name: TensorFacts(shape=shape) for name, shape in shapes.items()},
    )
    assert close(cells(step_over_rate(run)), {(10, "w"): 0.2, (10, "v"): 0.2, (20, "w"): 0.8})
    own = run_of(
        {"weight_deltas.*.norm": moved, "weight_deltas.*.learning_rate": {10: {"w": 0.05, "v": 0.5}}},
        {"learning_rate": [0.5] * 30},
        tensors={name: TensorFacts(shape=shape) for name, shape in shapes.items()},
    )
    assert close(cells(step_over_rate(own)), {(10, "w"): 2.0, (10, "v"): 0.2, (20, "w"): 0.4, (30, "w"): 0.5})
    assert not step_over_rate(run_of({"weight_deltas.*.norm": moved}, {"learning_rate": [0.5] * 30}))
    names = {step: {"optimizer.name": float(OPTIMIZERS.index("RAdam"))} for step in moved}
    facts = {name: TensorFacts(shape=shape) for name, shape in shapes.items()}
    assert not step_over_rate(
        run_of({"weight_deltas.*.norm": moved, "optimizer.name": names}, {"learning_rate": [0.5] * 30}, tensors=facts)
    )


def test_adam_on_noise_moves_by_the_share_that_the_text_gives():
    rng, rate, size, steps = np.random.default_rng(0), 1e-3, (40, 50), 600
    first, second, moved = np.zeros(size), np.zeros(size), {}
    for step in range(1, steps + 1):
        gradient = 1e-4 * rng.standard_normal(size)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        update = rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        moved[step] = {"w": float(np.linalg.norm(update))}
    run = run_of({"weight_deltas.*.norm": moved}, {"learning_rate": [rate] * steps}, tensors={"w": TensorFacts(shape=[*size])})
    assert abs(np.median(step_over_rate(run).values[100:]) - np.sqrt(0.1 / 1.9)) < 0.01


def test_replays_are_as_recorded():
    rows = {
        "replay.identical": {10: {"x": 1.0}, 20: {"x": 0.0}},
        "replay.loss_diff": {20: {"x": 1e-7}},
        "replay.first_difference": {20: {"x": 13.0}},
    }
    run = run_of(rows)
    assert cells(replay_identical(run)) == {(10, "x"): 1.0, (20, "x"): 0.0}
    assert cells(replay_loss_diff(run)) == {(20, "x"): 1e-7}
    assert cells(replay_first_difference(run)) == {(20, "x"): 13.0}


def test_decay_in_balance_is_the_root_of_half_of_rate_times_decay():
    rng, rate, decay, size, steps = np.random.default_rng(1), 0.01, 0.5, (40, 50), 4000
    weights, rows = rng.standard_normal(size), {"weight_deltas.*.decay": {}, "weight_deltas.*.relative": {}}
    for step in range(1, steps + 1):
        update = -rate * decay * weights + rate * np.sign(rng.standard_normal(size))  # what is learnt points anywhere
        weights = weights + update
        rows["weight_deltas.*.decay"][step] = {"w": rate * decay, "bias": rate * decay}
        rows["weight_deltas.*.relative"][step] = {"w": float(np.linalg.norm(update) / np.linalg.norm(weights)), "bias": 0.1}
    run = run_of(rows, tensors={"w": TensorFacts(shape=[*size]), "bias": TensorFacts(shape=[8])})
    share = weight_decay_to_update(run)
    assert share.labels == ("w",)
    assert np.median(share.values[3000:]) == pytest.approx(np.sqrt(rate * decay / 2), rel=0.05)


def test_the_share_of_decayed_tensors_counts_those_that_an_update_moved():
    rows = {
        "weight_deltas.*.norm": {10: {"w": 0.1, "bias": 0.1}, 20: {"w": 0.1, "bias": 0.1}, 30: {"w": 0.1}},
        "weight_deltas.*.decay": {10: {"w": 0.01}, 20: {"w": 0.0, "bias": 0.0}},
    }
    assert cells(decayed_share(run_of(rows))) == {
        (10, "decayed_share"): 0.5,
        (20, "decayed_share"): 0.0,
        (30, "decayed_share"): 0.0,
    }
    without = {"weight_deltas.*.norm": rows["weight_deltas.*.norm"]}
    assert not decayed_share(run_of(without))  # another program may not have looked
    named = without | {"optimizer.name": {10: {"x": float(OPTIMIZERS.index("Adam"))}}}
    assert not decayed_share(run_of(named, source="mine"))
    assert not decayed_share(run_of(without, source="ckaudit recorder 0.1.0"))  # nor does ours know an optimizer of one's own
    assert set(cells(decayed_share(run_of(named, source="ckaudit recorder 0.1.0"))).values()) == {0.0}


def test_epsilon_is_held_against_the_gradient_of_an_element_after_clipping():
    shapes = {"w": TensorFacts(shape=[4, 25]), "bias": TensorFacts(shape=[4])}
    adam, sgd = ({10: {"optimizer.name": float(OPTIMIZERS.index(name))}} for name in ("AdamW", "SGD"))
    rows = {
        "gradients.*.norm": {10: {"w": 0.5, "bias": 1.0}, 20: {"w": 0.0, "bias": 1.0}},
        "optimizer.epsilon": {10: {"optimizer.epsilon": 0.1}, 20: {"optimizer.epsilon": 0.1}},
        "optimizer.clip_coefficient": {10: {"x": 0.5}},
    }
    assert close(cells(epsilon_to_gradient(run_of(rows | {"optimizer.name": adam}, tensors=shapes))), {(10, "w"): 4.0})
    assert not epsilon_to_gradient(run_of(rows | {"optimizer.name": sgd}, tensors=shapes))


def test_elements_without_a_gradient_are_no_lost_updates():
    shapes = {"w": TensorFacts(shape=[4, 25]), "bias": TensorFacts(shape=[4])}
    rows = {
        "weight_deltas.*.unchanged": {10: {"w": 0.9, "bias": 1.0}, 20: {"w": 0.2, "bias": 1.0}},
        "gradients.*.zero_fraction": {10: {"w": 0.3, "bias": 0.0}, 20: {"w": 0.5, "bias": 0.0}},
    }
    assert close(cells(lost_update_share(run_of(rows, tensors=shapes))), {(10, "w"): 0.6, (20, "w"): 0.0})
