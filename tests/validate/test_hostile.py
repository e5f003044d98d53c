"""Bad input ends in a clear finding, soon, in bounded memory, and costs no other file its judgement."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ckaudit.errors import UnreadableError
from ckaudit.validate import validate
from tests.loops import for_each
from tests.validate.hostile import CASES, GOOD, plant_all

ROOT = Path(__file__).parents[2]
NAME = "analysis_checkpoint_step_00000010"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    plant_all(folder)
    script = Path(__file__).with_name("hostile.py")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, script, folder], capture_output=True, text=True, env=environment, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_named_and_the_good_file_beside_it_is_judged(results, case):
    if case == "unreadable" and os.geteuid() == 0:
        pytest.skip("root may read everything")
    wanted, result = CASES[case][1], results[case]
    assert result["files"] == 2
    assert all(file != GOOD for _, file, _ in result["found"])
    if wanted:
        assert any(code.startswith(wanted) for code, _, _ in result["found"])
        assert result["verdict"].startswith("1 of 2 files breaks the contract")
    else:
        assert result["found"] == []


@for_each("case", CASES)
def test_bad_input_is_judged_within_seconds(results, case):
    assert results[case]["seconds"] < 15


def test_lines_after_a_huge_line_are_still_read(results):
    assert [file for _, file, _ in results["log with a line of 60 MB"]["found"]] == ["scalars.jsonl"]


def _plant_good(folder: Path) -> None:
    (folder / GOOD).write_text('{"schema_version": "ck.analysis.v1", "step": 0}')


@pytest.mark.parametrize("hostile", ["\x1b[31mred", "two\nlines", "<script>", "\u202egnp", "a\tb", "#%20?", "-rf", "\U0001f600"])
def test_strange_file_names_are_read_and_kept_as_they_are(tmp_path, hostile):
    _plant_good(tmp_path)
    (tmp_path / f"{NAME}{hostile}.json").write_text('{"schema_version": "ck.analysis.v1", "step": "x"}')
    report = validate([tmp_path])
    assert [(finding.code, finding.file) for finding in report.findings] == [("SCH004", f"{NAME}{hostile}.json")]
    assert report.files == 2


def test_a_name_that_is_not_utf8_is_shown_as_text_that_can_be_written(tmp_path):
    _plant_good(tmp_path)
    (tmp_path / os.fsdecode(NAME.encode() + b"\xff.json")).write_text("{")
    (finding,) = validate([tmp_path]).findings
    assert finding.file == NAME + r"\xff.json"
    assert finding.file.encode() == NAME.encode() + rb"\xff.json"


def test_an_empty_folder_cannot_be_audited(tmp_path):
    with pytest.raises(UnreadableError, match="holds no checkpoint"):
        validate([tmp_path])


def test_a_folder_of_runs_says_which_one_to_name(tmp_path):
    (tmp_path / "first").mkdir()
    _plant_good(tmp_path / "first")
    with pytest.raises(UnreadableError) as caught:
        validate([tmp_path])
    assert "first" in caught.value.hint


@pytest.mark.parametrize("name", ["nowhere", "loop", "pipe"])
def test_an_argument_that_cannot_be_read_is_an_error_alone_and_a_finding_among_others(tmp_path, name):
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "run").mkdir()
    _plant_good(tmp_path / "run")
    with pytest.raises(UnreadableError):
        validate([tmp_path / name])
    report = validate([tmp_path / "run", tmp_path / name])
    assert [(finding.code, finding.file) for finding in report.findings] == [("SYN001", str(tmp_path / name))]


def test_temporary_files_are_not_ours(tmp_path):
    _plant_good(tmp_path)
    (tmp_path / f".{NAME}.json.tmp-77").write_text("{")
    (tmp_path / f"{NAME}.json.tmp").write_text("{")
    report = validate([tmp_path])
    assert (report.files, report.findings) == (1, [])
