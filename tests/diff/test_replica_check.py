"""Ranks that hold, or do not hold, the same parameters."""

import json
from pathlib import Path

import pytest

from ckaudit.diff.replica_check import replicas
from tests.diff.pairs import PAIRS

RUNS = PAIRS.parent / "runs"


def run_of(folder: Path, hashes: dict[int, list[str | None]]) -> Path:
    for step, ranks in hashes.items():
        head = {"schema_version": "ck.analysis.v1", "step": step}
        (folder / f"analysis_checkpoint_step_{step:08d}.json").write_text(json.dumps(head | {"loss": 1.0}))
        for rank, each in enumerate(ranks):
            if each is not None:
                path = folder / f"analysis_checkpoint_step_{step:08d}.rank{rank:03d}.json"
                path.write_text(json.dumps(head | {"rank": rank, "rank_facts": {"parameter_hash": each}}))
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
