"""Ranks that hold, or do not hold, the same parameters."""

import json
from pathlib import Path

import pytest

from ckaudit.diff.replica_check import replicas
from tests.diff.pairs import PAIRS

RUNS = PAIRS.parent / "runs"


def run_of(folder: Path, hashes: dict[int, list[str | None]], batches: dict[int, list[str]] | None = None) -> Path:
    for step, ranks in hashes.items():
        head = {"schema_version": "ck.analysis.v1", "step": step}
        (folder / f"analysis_checkpoint_step_{step:08d}.json").write_text(json.dumps(head | {"loss": 1.0}))
        for rank, each in enumerate(ranks):
            if each is not None:
                path = folder / f"analysis_checkpoint_step_{step:08d}.rank{rank:03d}.json"
                facts = {"parameter_hash": each} | ({"data_hash": batches[step][rank]} if batches else {})
                path.write_text(json.dumps(head | {"rank": rank, "rank_facts": facts}))
    return folder


def test_recorded_ranks_agree() -> None:
    pair = replicas(RUNS / "experts_two_ranks")
    assert (pair.word, pair.parting) == ("same", None)
    assert "2 ranks at 13 checkpoints" in pair.verdict


def test_the_first_rank_that_drifts_is_named_and_whether_it_came_back(tmp_path: Path) -> None:
    run = run_of(tmp_path, {10: ["a"] * 4, 20: ["b", "b", "x", "b"], 30: ["c", "y", "x", "c"], 40: ["d", "z", "d", "d"]})
    pair = replicas(run)
    assert pair.word == "different"
    assert [(each.where, each.step) for each in pair.propagation] == [("rank.2", 20), ("rank.1", 30)]
    assert "rank.2 holds other parameters at step 20, after agreeing at step 10; it agrees again at step 40" in pair.verdict
    assert "it did not come back" in pair.propagation[1].message
    assert [each.question for each in pair.answers] == ["replicas", "replicas@rank.2", "replicas@rank.1"]


def test_of_two_ranks_nobody_knows_which_is_right(tmp_path: Path) -> None:
    pair = replicas(run_of(tmp_path, {10: ["a", "b"]}))
    assert "as many ranks hold the one as the other" in pair.verdict
    assert "from the first checkpoint on" in pair.verdict


@pytest.mark.parametrize("hashes", [{10: ["a", None]}, {10: [None, None]}])
def test_without_two_ranks_nothing_is_recorded(tmp_path: Path, hashes: dict[int, list[str | None]]) -> None:
    assert replicas(run_of(tmp_path, hashes)).word == "not_recorded"


def test_ranks_that_read_the_same_batches_are_named(tmp_path: Path) -> None:
    held = {step: [str(step)] * 3 for step in (10, 20)}
    apart = {10: ["p", "q", "p"], 20: ["s", "t", "u"]}
    assert replicas(run_of(tmp_path, held, apart)).word == "same"
    pair = replicas(run_of(tmp_path, held, {10: ["p", "q", "p"], 20: ["s", "t", "s"]}))
    assert pair.word == "different"
    assert [(each.where, each.step) for each in pair.propagation] == [("rank.2", 10)]
    assert "rank.2 read the same batches as rank.0 at all 2 checkpoints" in pair.verdict
    assert not pair.notes


def test_batches_that_nobody_recorded_are_no_batches_of_their_own(tmp_path: Path) -> None:
    pair = replicas(run_of(tmp_path, {10: ["a", "a"], 20: ["b", "b"]}))
    assert pair.word == "same"
    assert "recorder.step(loss, batch=batch)" in pair.notes[0]
