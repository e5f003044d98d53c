"""How runs and checkpoints are named on the command line, and every way to name them wrongly."""

import json
import shutil
from pathlib import Path

import pytest

from ckaudit.cli.run import run
from ckaudit.diff.operands import parse_operand
from ckaudit.errors import UnreadableError, UsageError

PAIRS = Path(__file__).parents[2] / "fixtures" / "pairs"
BASE, OTHER = str(PAIRS / "base"), str(PAIRS / "lr_doubled")


def test_a_step_of_a_run_is_its_file_and_last_the_newest():
    assert parse_operand(f"{BASE}@500").path.name == "analysis_checkpoint_step_00000500.json.zst"
    assert parse_operand(f"{BASE}@0").path.name == "analysis_checkpoint_step_00000000.json.zst"
    assert parse_operand(f"{BASE}@last").path.name == "analysis_checkpoint_step_00000700.json.zst"
    assert parse_operand(f"{BASE}@last").is_checkpoint
    assert not parse_operand(BASE).is_checkpoint


def test_a_path_with_an_at_wins(tmp_path):
    shutil.copytree(BASE, tmp_path / "run@500")
    shutil.copytree(BASE, tmp_path / "run")
    assert parse_operand(str(tmp_path / "run@500")).path == tmp_path / "run@500"
    assert parse_operand(str(tmp_path / "run@500@600")).path.name.endswith("00000600.json.zst")


def test_a_file_is_a_checkpoint_by_its_name_or_by_what_is_in_it(tmp_path):
    named = tmp_path / "analysis_checkpoint_step_00000007.json"
    named.write_text("{}")
    other = tmp_path / "any.json"
    other.write_text(json.dumps({"schema_version": "ck.analysis.v1", "step": 3}))
    log = tmp_path / "log.csv"
    log.write_text("step,loss\n1,2\n")
    assert [parse_operand(str(path)).is_checkpoint for path in (named, other, log)] == [True, True, False]


@pytest.mark.parametrize(
    ("word", "error", "message", "hint"),
    [
        ("nowhere", UnreadableError, "nowhere does not exist", "Name a run folder"),
        ("nowhere@5", UnreadableError, "nowhere@5 does not exist", "Name a run folder"),
        (f"{BASE}@501", UnreadableError, "has no checkpoint of step 501", "the nearest are 400, 500, 600"),
        (f"{BASE}@first", UsageError, "@first names no checkpoint", "@700"),
        (f"{BASE}@-5", UsageError, "@-5 names no checkpoint", "write a step"),
        (f"{BASE}/run.json@5", UnreadableError, "is no run folder", "name the file alone"),
    ],
)
def test_what_is_not_there_is_said(word, error, message, hint):
    with pytest.raises(error) as raised:
        parse_operand(word)
    assert message in str(raised.value)
    assert hint in raised.value.hint


def test_an_empty_folder_has_no_checkpoint(tmp_path):
    with pytest.raises(UnreadableError, match="holds no checkpoint"):
        parse_operand(f"{tmp_path}@5")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([BASE], "there is nothing to compare it with"),
        ([BASE] * 21, "21 subjects are too many"),
        ([f"{BASE}@500", OTHER], "is one checkpoint and"),
        ([BASE, OTHER, "--exact", "--parity"], "two questions"),
        ([BASE, OTHER, "--resume", "--step", "3"], "--step has no meaning with --resume"),
        ([BASE, OTHER, "--replicas"], "--replicas is asked of one run"),
        ([f"{BASE}@500", f"{OTHER}@500", "--noise", BASE], "--noise has no meaning between checkpoints"),
        ([f"{BASE}@500", f"{OTHER}@500", "--exact"], "--exact has no meaning between checkpoints"),
        ([BASE, OTHER, "--align", "time"], "unknown axis 'time'"),
        ([BASE, OTHER, "--format", "xml"], "unknown format 'xml'"),
        ([BASE, OTHER, "--fail-on", "bad"], "unknown word 'bad'"),
        ([BASE, OTHER, "--step", "-1"], "is negative"),
        ([BASE, "nowhere"], "nowhere does not exist"),
        ([BASE, OTHER, "--noise", "nowhere"], "nowhere does not exist"),
    ],
)
def test_what_cannot_be_asked_is_one_line_with_a_hint(arguments, message, capfd):
    assert run(["diff", *arguments]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert message in err.splitlines()[0]
    assert err.splitlines()[1].startswith("hint: ")
    assert "bug" not in err
