"""Two runs of one seed, to the last bit."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckaudit.diff.compare import compare
from ckaudit.diff.exact import exact
from ckaudit.diff.exact_values import describe_difference, identical, ulps, ulps_of_single
from tests.diff.pairs import CHECKPOINT, PAIRS, copied, document, lines, manifest, relog, rewrite

BASE = PAIRS / "base"
RANKS = PAIRS.parent / "runs" / "experts_two_ranks"
TENSOR = "blocks.1.mlp.up.weight"


@pytest.mark.parametrize("other", ["identical", "resumed"])
def test_runs_of_one_arithmetic_are_the_same(other: str) -> None:
    pair = exact(BASE, PAIRS / other)
    assert pair.word == "same"
    assert pair.parting is None
    counted = sum(len(set(line) - {"step", "time", "session", "step_time", "tokens_per_sec"}) for line in lines(BASE))
    assert f"{counted:,}" not in pair.verdict  # times left out besides
    assert "340 hashes" in pair.notes[0]


def test_what_a_recorder_pools_over_its_checkpoints_is_no_difference(tmp_path: Path) -> None:
    runs = [copied(name, tmp_path) for name in ("base", "resumed")]
    for run, pooled in zip(runs, (3.7984, 3.8274), strict=True):
        facts = {"function": "cross_entropy", "value": 2.5, "constant_value": pooled}
        rewrite(run, 500, lambda whole, facts=facts: whole.update(loss_function=facts))
    assert exact(*runs).word == "same"
    assert compare(runs).pairs[0].word == "same"


def test_a_float_one_ulp_apart_is_found_and_named(tmp_path: Path) -> None:
    run = copied("identical", tmp_path)
    before = document(run, 300)["weights"][TENSOR]["mean"]
    after = math.nextafter(before, math.inf)
    rewrite(run, 300, lambda whole: whole["weights"][TENSOR].update(mean=after))
    pair = exact(BASE, run)
    assert pair.word == "different"
    assert pair.parting is not None
    assert (pair.parting.step, pair.parting.where, pair.parting.statistic) == (300, TENSOR, "weights.mean")
    assert (pair.parting.left, pair.parting.right, pair.parting.band) == (before, after, 0.0)
    for part in (before.hex(), after.hex(), "1 ulp apart in float64", "analysis_checkpoint_step_00000300.json.zst"):
        assert part in pair.parting.message
    assert len(pair.propagation) == 1


def test_the_sign_of_a_zero_counts(tmp_path: Path) -> None:
    run = copied("identical", tmp_path)
    assert document(run, 100)["attention"]["layer.0"]["upper_triangle_mass_per_head"] == [0.0, 0.0]
    rewrite(run, 100, lambda whole: whole["attention"]["layer.0"].update(upper_triangle_mass_per_head=[0.0, -0.0]))
    pair = exact(BASE, run)
    assert pair.parting is not None
    assert pair.parting.statistic == "attention.upper_triangle_mass_per_head[1]"


def test_a_hash_alone_is_enough(tmp_path: Path) -> None:
    run = copied("identical", tmp_path)
    rewrite(run, 500, lambda whole: whole["weights"][TENSOR].update(hash="blake2b:00"))
    pair = exact(BASE, run)
    assert pair.parting is not None
    assert (pair.parting.step, pair.parting.where, pair.parting.statistic) == (500, TENSOR, "weights.hash")


def test_a_line_one_ulp_apart_is_found(tmp_path: Path) -> None:
    def change(found: list[dict[str, Any]]) -> None:
        found[249]["grad_global_norm"] = math.nextafter(found[249]["grad_global_norm"], 0.0)

    pair = exact(BASE, relog(copied("identical", tmp_path), change))
    assert pair.parting is not None
    assert (pair.parting.step, pair.parting.statistic) == (250, "grad_global_norm")


def test_what_only_tells_the_time_is_left_out(tmp_path: Path) -> None:
    def change(found: list[dict[str, Any]]) -> None:
        for line in found:
            line |= {"time": line["time"] + 3600, "step_time": 9.0, "tokens_per_sec": 1.0, "mfu": 0.3}

    run = relog(copied("identical", tmp_path), change)
    rewrite(run, 100, lambda whole: whole.update(time=5.0, cost={"ms": 1e6}))
    assert exact(BASE, run).word == "same"


def test_what_one_side_lacks_is_said_and_not_taken_for_equal(tmp_path: Path) -> None:
    def change(found: list[dict[str, Any]]) -> None:
        del found[100:200]
        del found[0]["train_loss_raw"]

    pair = exact(BASE, relog(copied("identical", tmp_path), change))
    assert pair.word == "not_recorded"
    assert "only the first has train_loss_raw at 100 steps" in pair.notes
    run = copied("resumed", tmp_path)
    rewrite(run, 200, lambda whole: whole["weights"].pop(TENSOR))
    pair = exact(BASE, run)
    assert pair.word == "not_recorded"
    assert f"at step 200 only one run has weights of {TENSOR}" in pair.notes


def test_a_checkpoint_that_cannot_be_read_is_named_and_the_rest_is_compared(tmp_path: Path) -> None:
    run = copied("identical", tmp_path)
    (run / CHECKPOINT.format(300)).write_bytes(b"torn")
    pair = exact(BASE, run)
    assert pair.word == "not_recorded"
    assert CHECKPOINT.format(300) in pair.verdict
    assert pair.verdict.endswith(": it was not compared")
    rewrite(run, 500, lambda whole: whole["weights"][TENSOR].update(hash="blake2b:00"))
    pair = exact(BASE, run)
    assert pair.parting is not None
    assert (pair.word, pair.parting.step) == ("different", 500)
    assert any(CHECKPOINT.format(300) in note for note in pair.notes)


def test_files_of_ranks_are_compared_and_replaced_checkpoints_are_said_not_to_be(tmp_path: Path) -> None:
    one, other = (shutil.copytree(RANKS, tmp_path / name) for name in "ab")
    name = "analysis_checkpoint_step_00000200.rank001.json"
    text = (other / name).read_text()
    whole = json.loads(text)
    (other / name).write_text(text.replace(whole["rank_facts"]["parameter_hash"], "blake2b:00"))
    shutil.copy(other / name, other / "analysis_checkpoint_step_00000200.session000.rank001.json")
    pair = exact(Path(one), Path(other))
    assert pair.parting is not None
    assert (pair.parting.step, pair.parting.statistic) == (200, "rank_facts.parameter_hash")
    assert name in pair.parting.message
    assert any("1 checkpoint of the second that a resume replaced" in note for note in pair.notes)
    (other / name).unlink()
    pair = exact(Path(one), Path(other))
    assert (pair.word, "only the first has 1 rank file, the earliest at step 200" in pair.verdict) == ("not_recorded", True)


def test_nan_on_both_sides_is_the_same_and_on_one_is_not(tmp_path: Path) -> None:
    def change(found: list[dict[str, Any]]) -> None:
        found[9]["train_loss_raw"] = "NaN"

    one = relog(copied("base", tmp_path), change)
    other = relog(copied("identical", tmp_path), change)
    for run in (one, other):
        rewrite(run, 700, lambda whole: whole.pop("history"))
    assert exact(one, other).word == "same"
    pair = exact(BASE, other)
    assert pair.parting is not None
    assert (pair.parting.step, pair.parting.right) == (10, "NaN")


def test_without_hashes_it_is_said_that_only_statistics_were_compared(tmp_path: Path) -> None:
    runs = [copied(name, tmp_path) for name in ("base", "identical")]
    for run in runs:
        for step in (0, 50, *range(100, 701, 100)):
            rewrite(
                run,
                step,
                lambda whole: [
                    each.pop("hash", None) for name in ("weights", "gradients") for each in whole.get(name, {}).values()
                ],
            )
    pair = exact(*runs)
    assert pair.word == "same"
    assert "only statistics were compared" in pair.notes[0]


@pytest.mark.parametrize(
    ("other", "step", "statistic", "reason"),
    [
        ("replica", 0, "weights.hash", "seed Python, NumPy, torch"),
        ("lr_doubled", 500, "learning_rate", "doubled_from is 500"),
        ("frozen", 300, "grad_global_norm", "frozen_from is 300"),
        ("optimizer_lost", 402, "train_loss_raw", "taken up again after step 400, before they part at step 402"),
    ],
)
def test_runs_part_where_they_were_changed_and_reasons_are_told(other: str, step: int, statistic: str, reason: str) -> None:
    pair = exact(BASE, PAIRS / other)
    assert pair.parting is not None
    assert (pair.word, pair.parting.step, pair.parting.statistic) == ("different", step, statistic)
    assert any(reason in note for note in pair.notes)


def test_kernels_of_an_accelerator_are_suspected_where_tensors_live_on_one(tmp_path: Path) -> None:
    runs = [copied(name, tmp_path) for name in ("base", "identical")]
    for run in runs:
        manifest(run, lambda whole: [each.update(device="cuda:0") for each in whole["tensors"].values()])
    rewrite(runs[1], 50, lambda whole: whole["gradients"]["tokens.weight"].update(mean=1.0))
    pair = exact(*runs)
    assert any("embedding tokens.weight is summed by atomics" in note for note in pair.notes)
    assert not any("number of threads" in note for note in pair.notes)


@pytest.mark.parametrize("value", [1.0, -3.7e-300, 5e-324, 0.0, 1e308])
def test_ulps_are_counted_as_numpy_steps(value: float) -> None:
    there = value
    for _ in range(5):
        there = float(np.nextafter(there, np.inf))
    assert ulps(value, there) == 5
    assert ulps(there, value) == 5


def test_ulps_of_single_are_numpys() -> None:
    source = np.random.default_rng(0)
    for value in source.normal(size=200).astype(np.float32):
        there = np.nextafter(np.nextafter(value, np.float32(np.inf)), np.float32(np.inf))
        assert ulps_of_single(float(value), float(there)) == 2
        assert ulps_of_single(float(str(value)), float(str(there))) == 2  # as the recorder writes them
    assert ulps_of_single(0.1 + 1e-12, 0.1) is None
    assert ulps_of_single(1e300, 1e300) is None


def test_words_and_infinities_have_no_ulps() -> None:
    assert describe_difference("a", "b") == "a and b"
    assert "ulp" not in describe_difference(math.inf, 1.0)
    assert identical(math.nan, math.nan)
    assert not identical(math.nan, 1.0)
