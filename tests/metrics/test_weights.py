import numpy as np
import pytest

from ckaudit.metrics.weights import (
    relative_movement,
    spectral_norm,
    update_norm,
    update_to_weight,
    update_to_weight_global,
    weight_max_abs,
    weight_norm,
    weight_std,
)
from tests.metrics.samples import NAN, cells, close, random_run, rows_of, run_of

PLAIN = {weight_std: "weights.*.std", update_norm: "weight_deltas.*.norm", relative_movement: "weight_deltas.*.moved"}


@pytest.mark.parametrize("metric", PLAIN, ids=lambda metric: metric.name)
def test_plain_metrics_are_what_was_recorded(metric):
    run = random_run()
    assert close(cells(metric(run)), rows_of(run, PLAIN[metric]))


def test_the_spectral_norm_is_what_was_recorded_and_what_was_logged_beside_it():
    recorded, logged = {1: {"w": 2.0}, 2: {"w": 3.0}}, {2: {"w": 9.0, "v": 5.0}, 4: {"v": 6.0}}
    run = run_of({"weights.*.spectral_norm": recorded}, {"spectral_norm": logged})
    assert cells(spectral_norm(run)) == {(1, "w"): 2.0, (2, "w"): 3.0, (2, "v"): 5.0, (4, "v"): 6.0}


def test_norm_made_of_moments_is_the_norm_of_the_tensor():
    tensor = np.random.default_rng(3).normal(0.3, 2.0, (5, 7))
    moments = {"numel": tensor.size, "mean": tensor.mean(), "std": tensor.std()}
    run = run_of({f"weights.*.{name}": {1: {"w": float(value)}} for name, value in moments.items()})
    assert cells(weight_norm(run)) == {(1, "w"): pytest.approx(float(np.linalg.norm(tensor)))}


def test_recorded_norm_counts_and_moments_fill_its_gaps():
    run = run_of(
        {
            "weights.*.frobenius_norm": {1: {"a": 5.0}, 2: {"a": NAN}},
            "weights.*.numel": {1: {"a": 4, "b": 4}, 3: {"a": 4, "b": 4}},
            "weights.*.mean": {1: {"a": 1.0, "b": 3.0}, 3: {"a": 0.0, "b": NAN}},
            "weights.*.std": {1: {"a": 1.0, "b": 4.0}, 3: {"b": 1.0}},
        }
    )
    assert close(cells(weight_norm(run)), {(1, "a"): 5.0, (1, "b"): 10.0, (2, "a"): NAN, (3, "b"): NAN})


def test_update_to_weight_takes_the_recorded_ratio_first():
    run = run_of(
        {
            "weight_deltas.*.relative": {1: {"a": 0.5}},
            "weight_deltas.*.norm": {1: {"a": 1.0, "b": 1.0, "c": 1.0}, 2: {"a": NAN, "b": 2.0}},
            "weights.*.frobenius_norm": {0: {"a": 9.0}, 1: {"a": 4.0, "b": 4.0, "c": 0.0}, 2: {"a": 4.0}},
        }
    )
    assert close(cells(update_to_weight(run)), {(1, "a"): 0.5, (1, "b"): 0.25, (2, "a"): NAN})


def test_global_update_is_that_of_all_tensors_laid_end_to_end():
    rng = np.random.default_rng(1)
    old = {name: rng.normal(size=6) for name in "ab"}
    new = {name: values + rng.normal(size=6) / 100 for name, values in old.items()}
    run = run_of(
        {
            "weight_deltas.*.norm": {4: {name: float(np.linalg.norm(new[name] - old[name])) for name in "ab"}},
            "weights.*.frobenius_norm": {4: {**{name: float(np.linalg.norm(new[name])) for name in "ab"}, "frozen": 99.0}},
        }
    )
    moved, size = (np.linalg.norm(np.concatenate(parts)) for parts in ([new[n] - old[n] for n in "ab"], [new[n] for n in "ab"]))
    assert [*cells(update_to_weight_global(run)).values()] == [pytest.approx(float(moved / size))]


def test_logged_global_update_counts():
    rows = {2: {"a": 1.0}, 3: {"a": 1.0}}
    run = run_of({"weight_deltas.*.norm": rows, "weights.*.frobenius_norm": rows}, {"update_to_weight": [0.1, 0.2]})
    assert [value for _, value in sorted(cells(update_to_weight_global(run)).items())] == [0.1, 0.2, 1.0]


def test_max_abs_is_the_larger_end():
    run = run_of(
        {
            "weights.*.min": {1: {"a": -3.0, "b": 1.0, "c": -1.0}, 2: {"a": NAN}},
            "weights.*.max": {1: {"a": 2.0, "b": 4.0}, 2: {"a": 1.0}},
        }
    )
    assert close(cells(weight_max_abs(run)), {(1, "a"): 3.0, (1, "b"): 4.0, (2, "a"): NAN})


def test_an_update_of_zero_says_nothing_of_a_tensor_that_took_no_part_and_has_moved_in_other_steps():
    updates = {step: {"body": 1.0, "head": 0.0, "cut": 0.0, "stuck": 0.0} for step in (10, 20, 30)}
    ways = {step: {"body": step / 10, "head": step / 20, "cut": 0.0, "stuck": step / 30} for step in (10, 20, 30)}
    gradients = {step: {"body": 1.0, "stuck": 1.0} for step in (10, 20, 30)}
    run = run_of({"weight_deltas.*.norm": updates, "weight_deltas.*.moved": ways, "gradients.*.norm": gradients})
    found = cells(update_norm(run))
    assert {key for key in found if key[1] == "head"} == {(10, "head")}
    assert {key: value for key, value in found.items() if key[1] in ("cut", "stuck")} == {
        (step, label): 0.0 for step in (10, 20, 30) for label in ("cut", "stuck")
    }


def test_an_update_that_no_tensor_took_is_recorded_as_zero():
    updates = {step: {"body": 0.0, "head": 0.0} for step in (10, 20)}
    ways = {step: {"body": step / 10, "head": step / 20} for step in (10, 20)}
    run = run_of({"weight_deltas.*.norm": updates, "weight_deltas.*.moved": ways})
    assert set(cells(update_norm(run)).values()) == {0.0}
