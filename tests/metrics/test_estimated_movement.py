import numpy as np
import pytest

from ckaudit.metrics.weights import relative_movement, row_spread, weight_rms, weight_statistics_change
from tests.metrics.samples import cells, close, run_of

RNG = np.random.default_rng(0)
START = RNG.normal(0, 0.02, (8, 8))
MOVED = START + RNG.normal(0, 0.001, (8, 8))
GRID = "weights.*.sampled_grid_32x32"
NUMBERS = {"mean": np.mean, "std": np.std, "min": np.min, "max": np.max}


def _sections(tensors):
    """Return the statistics of {step: {name: values}}."""
    return {
        f"weights.*.{number}": {step: {name: float(of(values)) for name, values in row.items()} for step, row in tensors.items()}
        for number, of in NUMBERS.items()
    }


def _grids(tensors):
    return {GRID: {(step, name): values for step, row in tensors.items() for name, values in row.items()}}


def test_the_root_mean_square_is_that_of_the_elements():
    tensors = {10: {"w": START}, 20: {"w": MOVED}}
    expected = {(step, "w"): float(np.sqrt(np.mean(row["w"] ** 2))) for step, row in tensors.items()}
    assert close(cells(weight_rms(run_of(_sections(tensors)))), expected)


def test_the_root_mean_square_is_made_of_norm_and_number_where_there_is_no_deviation():
    run = run_of({"weights.*.frobenius_norm": {10: {"w": 6.0}}, "weights.*.numel": {10: {"w": 9.0}}})
    assert cells(weight_rms(run)) == {(10, "w"): 2.0}


def test_what_was_measured_counts():
    rows = {10: {"w": 0.1}, 20: {"w": 0.2}}
    run = run_of({"weight_deltas.*.moved": rows}, grids=_grids({10: {"w": START}, 20: {"w": MOVED}}))
    assert cells(relative_movement(run)) == {(10, "w"): 0.1, (20, "w"): 0.2}


def test_sampled_elements_tell_how_far_a_tensor_has_come_since_its_first_grid():
    tensors = {10: {"w": START, "v": START}, 20: {"w": MOVED, "v": START}, 30: {"w": START + 2 * (MOVED - START), "v": START}}
    moved = float(np.linalg.norm(MOVED - START) / np.linalg.norm(START))
    found = cells(relative_movement(run_of(grids=_grids(tensors))))
    assert close(found, {(20, "w"): moved, (30, "w"): 2 * moved, (20, "v"): 0.0, (30, "v"): 0.0}, 1e-9)


def test_a_mean_that_moves_beside_rows_that_were_not_sampled():
    grids = _grids({10: {"w": START}, 20: {"w": START}})
    run = run_of(
        {"weights.*.mean": {10: {"w": 0.0}, 20: {"w": 0.5}}, "weights.*.std": {10: {"w": 2.0}, 20: {"w": 2.0}}}, grids=grids
    )
    assert cells(relative_movement(run)) == {(20, "w"): 0.5 / np.hypot(0.5, 2.0)}


def test_without_elements_nobody_knows_how_far():
    assert not relative_movement(run_of(_sections({10: {"w": START}, 20: {"w": MOVED}})))


def test_the_largest_change_of_any_statistic():
    tensors = {10: {"w": START}, 20: {"w": MOVED}}
    size = max(np.sqrt(np.mean(values**2)) for values in (START, MOVED))
    expected = max(abs(float(of(MOVED) - of(START))) / size for of in NUMBERS.values())
    assert close(cells(weight_statistics_change(run_of(_sections(tensors)))), {(20, "w"): expected}, 1e-9)


def test_a_percentile_alone_shows_a_change():
    sections = _sections({10: {"w": START}, 20: {"w": START}})
    sections["weights.*.percentiles"] = {
        10: {"w/percentile.0": -0.02, "w/percentile.1": 0.02},
        20: {"w/percentile.0": -0.02, "w/percentile.1": 0.021},
    }
    found = cells(weight_statistics_change(run_of(sections)))
    assert close(found, {(20, "w"): 0.001 / float(np.sqrt(np.mean(START**2)))}, 1e-9)


@pytest.mark.parametrize(("numbers", "recorded"), [((0.0012, 0.045), False), ((0.00121234567, 0.0451234567), True)])
def test_rounded_numbers_cannot_tell_that_nothing_moved(numbers, recorded):
    mean, std = numbers
    run = run_of({"weights.*.mean": {1: {"w": mean}, 2: {"w": mean}}, "weights.*.std": {1: {"w": std}, 2: {"w": std}}})
    assert cells(weight_statistics_change(run)) == ({(2, "w"): 0.0} if recorded else {})


def test_elements_beside_rounded_numbers_can():
    sections = {"weights.*.mean": {1: {"w": 0.0012}, 2: {"w": 0.0012}}, "weights.*.std": {1: {"w": 0.045}, 2: {"w": 0.045}}}
    assert cells(weight_statistics_change(run_of(sections, grids=_grids({1: {"w": START}, 2: {"w": START}})))) == {(2, "w"): 0.0}


def test_rows_or_columns_that_are_copies_have_no_spread():
    copies = np.tile(START[0], (8, 1))
    tensors = {10: {"rows": copies, "columns": copies.T, "free": START, "zero": np.zeros((8, 8)), "gain": np.ones((1, 8))}}
    rows = max(abs(START[i, j] - START[0, j]) for i in range(8) for j in range(8))
    columns = max(abs(START[i, j] - START[i, 0]) for i in range(8) for j in range(8))
    expected = {(10, "rows"): 0.0, (10, "columns"): 0.0, (10, "free"): min(rows, columns) / np.sqrt(np.mean(START**2))}
    assert close(cells(row_spread(run_of(grids=_grids(tensors)))), expected)
