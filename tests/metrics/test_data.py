"""Token drift, probes, parity and rank memory against values made by hand."""

import json
import math
from pathlib import Path

import pytest

from ckaudit.metrics.data import input_kl_drift, token_kl_drift
from ckaudit.metrics.optimizer import opt_state_finite
from ckaudit.metrics.parity import parity_loss_diff, parity_param_diff
from ckaudit.metrics.probes import probe_accuracy
from ckaudit.metrics.ranks import rank_memory
from ckaudit.run.read import read_run
from ckaudit.run.run import Run


def recorded(folder: Path, *sections: dict[str, object]) -> Run:
    for index, section in enumerate(sections):
        text = json.dumps({"schema_version": "ck.analysis.v1", "step": 10 * index} | section)
        (folder / f"analysis_checkpoint_step_{10 * index:08d}.json").write_text(text)
    return read_run(folder)


def test_drift_is_the_divergence_of_smoothed_shares_from_the_first(tmp_path: Path) -> None:
    histograms = [[8, 1, 1], [8, 1, 1], [0, 9, 1], [1, 1]]
    run = recorded(tmp_path, *({"data": {"token_histogram": each}} for each in histograms))
    drift = token_kl_drift(run)
    first, third = [9 / 13, 2 / 13, 2 / 13], [1 / 13, 10 / 13, 2 / 13]
    expected = sum(p * math.log(p / q) for p, q in zip(third, first, strict=True))
    assert drift.recorded.ravel().tolist() == [False, True, True, False]
    assert drift.values[1, 0] == 0
    assert drift.values[2, 0] == pytest.approx(expected)


def test_inputs_twice_as_wide_and_one_deviation_away_are_1_3_nats_off(tmp_path: Path) -> None:
    numbers = [(0.0, 2.0), (0.0, 2.0), (2.0, 2.0), (2.0, 4.0), (0.0, 1.0)]
    run = recorded(tmp_path, {}, *({"data": {"input_mean": mean, "input_std": std}} for mean, std in numbers))
    drift = input_kl_drift(run)
    assert drift.steps.tolist() == [20, 30, 40, 50]
    expected = [0.0, 0.5, 2.0 - math.log(2), math.log(2) - 0.375]
    assert drift.values[:, 0].tolist() == pytest.approx(expected)


def test_probes_of_training_and_held_out_ones_are_averaged_apart(tmp_path: Path) -> None:
    probes = {
        "a": {"exact_match": 1.0},
        "b": {"exact_match": 0.5, "held_out": False},
        "c": {"exact_match": 0.1, "held_out": True},
    }
    accuracy = probe_accuracy(recorded(tmp_path, {"probes": probes}))
    assert dict(zip(accuracy.labels, accuracy.values[0].tolist(), strict=True)) == {"train": 0.75, "held_out": 0.1}


def test_parity_prefers_the_relative_difference(tmp_path: Path) -> None:
    run = recorded(tmp_path, {"parity": {"loss_diff": 4.77e-7, "param_diff": 2.06e-5}})
    assert parity_loss_diff(run).values.tolist() == [[4.77e-7]]
    assert parity_param_diff(run).values.tolist() == [[2.06e-5]]
    other = recorded(tmp_path, {"parity": {"param_diff": 2.06e-5, "relative_param_diff": 1e-6}})
    assert parity_param_diff(other).values.tolist() == [[1e-6]]


def test_a_moment_that_is_not_finite_is_zero(tmp_path: Path) -> None:
    run = recorded(tmp_path, {"optimizer": {"state_finite": True}}, {}, {"optimizer": {"state_finite": False}})
    finite = opt_state_finite(run)
    assert finite.values[finite.recorded].tolist() == [1.0, 0.0]


def test_memory_is_of_the_rank_that_says_it(tmp_path: Path) -> None:
    recorded(tmp_path, {})
    text = json.dumps({"schema_version": "ck.analysis.v1", "step": 0, "rank": 2, "rank_facts": {"memory_used": 7}})
    (tmp_path / "analysis_checkpoint_step_00000000.rank002.json").write_text(text)
    memory = rank_memory(read_run(tmp_path))
    assert (memory.labels, memory.values.tolist()) == (("rank.2",), [[7.0]])
