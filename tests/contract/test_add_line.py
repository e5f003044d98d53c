"""Values measured beside a training join the step and the session that they belong to, and change nothing else."""

import json

import numpy as np
import pytest

from ckaudit.contract.io.add_line import add_line
from ckaudit.errors import UnreadableError, UsageError
from ckaudit.run.read import read_run
from ckaudit.validate import validate

NAME = "scalars-data.jsonl"


@pytest.fixture
def run(tmp_path):
    """Two sessions: the second begins again at step 5, so that the first counts until step 4."""
    lines = [{"step": step, "session": 0, "train_loss_raw": 3.0} for step in range(1, 9)]
    lines += [{"step": step, "session": 1, "train_loss_raw": 2.0} for step in range(5, 11)]
    (tmp_path / "scalars.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def lines(run):
    return [json.loads(line) for line in (run / NAME).read_text().splitlines()]


def test_a_line_belongs_to_the_session_that_counts_at_its_step(run):
    assert [add_line(run, NAME, {"near_dup_rate": 0.1}, step=step) for step in (3, 5, None)] == [3, 5, 10]
    assert [(line["step"], line["session"]) for line in lines(run)] == [(3, 0), (5, 1), (10, 1)]


def test_a_step_after_the_end_is_refused_and_nothing_is_written(run):
    with pytest.raises(UsageError, match="ends at step 10, before --step 11"):
        add_line(run, NAME, {"near_dup_rate": 0.1}, step=11)
    assert not (run / NAME).exists()
    (run / NAME).write_text('{"step": 5000, "near_dup_rate": 0.2}\n')  # what no training wrote does not move its end
    assert add_line(run, "scalars-probe-toxicity.jsonl", {"rtp_toxicity_prob": 0.1}) == 10
    with pytest.raises(UsageError, match="ends at step 10"):
        add_line(run, NAME, {"near_dup_rate": 0.1}, step=5000)


def test_before_anything_is_recorded_every_step_is_taken(tmp_path):
    assert [add_line(tmp_path, NAME, {"near_dup_rate": 0.1}, step=step) for step in (500, 900, None)] == [500, 900, 0]


def test_a_run_reads_them_and_nothing_else_of_it_changes(run):
    before = read_run(run).scalars["train_loss_raw"]
    add_line(run, NAME, {"source_mix_share/web": 0.75, "source_mix_share/books": 0.25, "pad_fraction": float("nan")}, step=3)
    add_line(run, NAME, {"source_mix_share/web": 0.5}, step=8)
    after = read_run(run)
    np.testing.assert_array_equal(after.scalars["train_loss_raw"].values, before.values)
    mix = after.scalars["source_mix_share"]
    assert (mix.steps.tolist(), mix.labels) == ([3, 8], ("web", "books"))
    assert mix.recorded.tolist() == [[True, True], [True, False]]
    assert np.isnan(after.scalars["pad_fraction"].values).all()
    assert [finding.code for finding in validate([run]).findings] == []


def test_measuring_again_replaces_the_same_values_and_keeps_the_others(run):
    add_line(run, NAME, {"near_dup_rate": 0.1, "pii_hit_rate": 0.2}, step=4)
    add_line(run, NAME, {"near_dup_rate": 0.3}, step=4)
    assert [(line["near_dup_rate"], line["pii_hit_rate"]) for line in lines(run)] == [(0.3, 0.2)]


def test_the_last_step_may_be_that_of_a_checkpoint(tmp_path):
    (tmp_path / "analysis_checkpoint_step_00000500.json").write_text("{}")
    assert add_line(tmp_path, NAME, {"near_dup_rate": 0.1}) == 500


def test_a_broken_log_and_a_missing_folder_are_left_alone(run):
    (run / NAME).write_text("{broken\n")
    with pytest.raises(UnreadableError, match="broken"):
        add_line(run, NAME, {"near_dup_rate": 0.1})
    assert (run / NAME).read_text() == "{broken\n"
    with pytest.raises(UnreadableError, match="no run folder"):
        add_line(run / "missing", NAME, {"near_dup_rate": 0.1})
