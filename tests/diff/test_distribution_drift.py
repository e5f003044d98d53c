"""Distances between the same parts of two recorded models, computed again from the files with numpy."""

import base64
import math
from typing import Any

import numpy as np
import pytest

from ckaudit.diff.distribution_drift import cells, drifts, drifts_of
from tests.diff.pairs import PAIRS, document


def by_measure(other: str, step: int) -> dict[str, list[Any]]:
    found = drifts(PAIRS / "base", PAIRS / other, [step], max_places=3)
    return {name: [each for each in found if each.measure == name] for name in {each.measure for each in found}}


def test_equal_checkpoints_have_no_drift_and_unshared_steps_are_passed_over() -> None:
    assert drifts(PAIRS / "base", PAIRS / "identical", [0, 50, 100, 300, 700]) == []
    assert drifts(PAIRS / "base", PAIRS / "lr_doubled", [400, 410, 999_999]) == []


def test_the_farthest_of_each_measure_are_told_first() -> None:
    found = by_measure("replica", 300)
    assert set(found) == {"wasserstein", "psi", "grid", "norm", "head_entropy", "movement_rank"}
    assert all(len(each) <= 3 for each in found.values())
    assert [each.value for each in found["wasserstein"]] == sorted((each.value for each in found["wasserstein"]), reverse=True)
    ratios = [abs(math.log(each.value)) for each in found["norm"]]
    assert ratios == sorted(ratios, reverse=True)
    assert all(each.message and each.step == 300 for parts in found.values() for each in parts)


def test_norms_heads_and_ranks_are_those_of_the_files() -> None:
    found, one, other = by_measure("replica", 300), document(PAIRS / "base", 300), document(PAIRS / "replica", 300)
    drift = found["head_entropy"][0]
    layer, _, head = drift.where.rpartition("/head.")
    values = [each["attention"][layer]["entropy_per_head"][int(head)] for each in (one, other)]
    assert [drift.left, drift.right] == values
    assert drift.value == pytest.approx(values[1] - values[0])
    widest = max(
        abs(b - a)
        for name in one["attention"]
        for a, b in zip(one["attention"][name]["entropy_per_head"], other["attention"][name]["entropy_per_head"], strict=True)
    )
    assert abs(drift.value) == pytest.approx(widest)
    moved = [[each["weight_deltas"][name]["moved"] for name in one["weight_deltas"]] for each in (one, other)]
    ranks = [np.argsort(np.argsort(each)) for each in moved]
    assert found["movement_rank"][0].value == pytest.approx(float(np.corrcoef(*ranks)[0, 1]))


def test_grids_are_compared_as_numpy_does() -> None:
    found, one, other = by_measure("replica", 700), document(PAIRS / "base", 700), document(PAIRS / "replica", 700)
    drift = found["grid"][0]
    field = "sampled_qk_grid_32x32_per_head" if drift.section == "attention" else "sampled_grid_32x32"
    a, b = (unpacked(each[drift.section][drift.where][field]) for each in (one, other))
    assert drift.value == pytest.approx(float(np.linalg.norm(a - b) / np.linalg.norm(a)))


def unpacked(grid: dict[str, Any]) -> np.ndarray:
    data = np.frombuffer(base64.b64decode(grid["data"]), np.uint8)
    return grid["min"] + (grid["max"] - grid["min"]) * data / 255


def test_grids_of_other_shapes_and_broken_ones_are_not_compared() -> None:
    one = {"weights": {"w": {"sampled_grid_32x32": [[1.0, 2.0]], "histogram": {"bins": "x", "counts": [1]}}}}
    other = {"weights": {"w": {"sampled_grid_32x32": [[1.0, 2.0, 3.0]], "histogram": {"bins": [0, 1], "counts": [1]}}}}
    assert drifts_of(one, other, 1) == []
    assert cells({"min": 0}) == []
    assert cells("no grid") == []


def test_nested_and_packed_grids_are_one() -> None:
    packed = {"encoding": "q8", "shape": [1, 2], "min": 0.0, "max": 1.0, "data": base64.b64encode(bytes([0, 255])).decode()}
    assert cells(packed) == cells([[0.0, 1.0]]) == cells([[[0.0, 1.0]]])


def test_so_few_elements_that_chance_would_be_a_shift_have_no_index() -> None:
    def layer(low: float, count: int) -> dict[str, Any]:
        return {"weights": {"w": {"std": 1.0, "histogram": {"bins": [low, low + 1, low + 2], "counts": [count, count]}}}}

    assert "psi" not in {each.measure for each in drifts_of(layer(0.0, 10), layer(0.5, 10), 1)}
    found = {each.measure: each for each in drifts_of(layer(0.0, 1000), layer(0.5, 1000), 1)}
    assert found["psi"].value > 0.25
    assert found["wasserstein"].value == pytest.approx(0.5)


def test_a_frozen_layer_is_where_the_norms_go_apart() -> None:
    frozen = {each.where for each in by_measure("frozen", 700)["norm"] if each.section == "weights"}
    assert frozen == {"blocks.1.mlp.up.weight", "blocks.1.mlp.down.weight"}
