"""Standard streams that are closed, full or gone, a folder that is gone, and folders that may not be entered."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ckaudit.cli.run import run
from tests import rights
from tests.forked import ckaudit

ROOT = Path(__file__).parents[2]
BASE = ROOT / "fixtures" / "pairs" / "base"


def shell(command, cwd=ROOT):
    """Run a shell line in which $CK is the program; return its exit code and both of its streams."""
    environment = {**os.environ, "CK": f"{sys.executable} -m ckaudit", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=cwd, env=environment, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("command", [f"validate {BASE}", "--help", "--version", "import --formats", f"hash {BASE}"])
@pytest.mark.parametrize("stream", [">&-", ">/dev/full"])
def test_an_answer_that_cannot_be_written_is_an_audit_that_could_not_be_made(command, stream):
    code, _, told = shell(f"$CK {command} {stream}")
    assert code == 2
    assert "bug" not in told
    assert "Traceback" not in told
    assert told.count("\n") == 1
    assert "Bad file descriptor" in told or "No space left on device" in told


@pytest.mark.parametrize("stream", ["2>&-", "2>/dev/full", "2>/dev/full <&-"])
def test_nobody_listening_on_standard_error_changes_no_exit_code(stream):
    assert shell(f"$CK validate {BASE} {stream}")[0] == 0
    assert shell(f"$CK triage nothere {stream}")[0] == 2
    assert shell(f"$CK triage --nope {stream}")[0] == 2


def test_both_streams_full_is_still_an_audit_that_could_not_be_made():
    assert shell(f"$CK validate {BASE} >/dev/full 2>/dev/full")[0] == 2
    assert shell(f"$CK validate {BASE} >&- 2>&-")[0] == 2


def test_a_file_is_written_whole_where_standard_output_is_closed(tmp_path):
    """Without a stream in its place the file would get its number, and everything that is printed with it."""
    code, _, _ = shell(f"$CK validate {BASE} --format json -o {tmp_path}/report.json <&- >&- 2>&-")
    assert code == 0
    assert (tmp_path / "report.json").read_text().startswith("{")


@pytest.mark.parametrize("command", [f"triage {BASE}", "triage .", "validate .", f"report {BASE}", "resume-check ."])
def test_a_working_folder_that_is_gone_is_said(tmp_path, command):
    folder = tmp_path / "gone"
    folder.mkdir()
    code, _, told = shell(f"rmdir {folder}; $CK {command}", folder)
    assert code == 2
    assert "the folder that this shell is in is no longer there" in told


@pytest.mark.skipif(not rights.CAN_GIVE_UP, reason="root may enter every folder")
@pytest.mark.parametrize(
    "command",
    ["triage", "validate", "metrics", "import", "data", "hash", "resume-check", "diff base", "report base -o shut/x.html"],
)
def test_a_folder_that_may_not_be_entered_is_said(tmp_path, command):
    shutil.copytree(BASE, tmp_path / "base")
    shutil.copytree(BASE, tmp_path / "shut").chmod(0o644)
    try:
        words = command if "shut" in command else f"{command} shut"
        done = ckaudit(*words.split(), cwd=tmp_path, without_rights=True)
    finally:
        (tmp_path / "shut").chmod(0o755)
    assert done.returncode == 2
    assert "shut/" in done.stdout + done.stderr
    assert "Permission denied" in done.stdout + done.stderr
    assert "bug" not in done.stderr


@pytest.mark.skipif(not rights.CAN_GIVE_UP, reason="root may enter every folder")
@pytest.mark.parametrize("mode", [0o644, 0o311, 0o000])
@pytest.mark.parametrize("command", ["validate", "fleet", "data"])
def test_what_lies_beside_a_folder_that_is_shut_is_judged(tmp_path, command, mode):
    """A folder that cannot be entered, or not be listed, costs itself, and is told."""
    for name in ("shut", "good"):
        shutil.copytree(BASE, tmp_path / name)
        (tmp_path / name / "text.txt").write_text("the quick brown fox")
    (tmp_path / "shut").chmod(mode)
    try:
        done = ckaudit(command, "shut", "good", cwd=tmp_path, without_rights=True)
    finally:
        (tmp_path / "shut").chmod(0o755)
    assert done.returncode in (1, 2)
    assert "ermission denied" in done.stdout + done.stderr
    assert {"validate": "11 files read", "fleet": "in 1 run", "data": "1 record"}[command] in done.stdout


def test_a_report_that_takes_more_memory_than_there_is_is_no_bug(monkeypatch, capfd):
    monkeypatch.setattr("ckaudit.cli.app.invoke", lambda _: (_ for _ in ()).throw(MemoryError()))
    assert run(["triage", "run"]) == 2
    assert "error: there is not enough memory" in capfd.readouterr().err


CLIMBING = "for i in 1 2 3 4 5 6 7 8; do echo step $i loss $((i * i)).5; done"


def test_a_log_that_is_piped_in_is_judged_like_its_file(tmp_path):
    file = tmp_path / "train.log"
    _, piped, _ = shell(f"{CLIMBING} | tee {file} | $CK triage - --format json")
    _, read, _ = shell(f"$CK triage {file} --format json")
    piped, read = json.loads(piped), json.loads(read)
    assert piped["subject"] == "standard input"
    assert {finding["code"] for finding in piped["findings"]} == {"LOSS004"}
    assert piped["findings"] == read["findings"]


@pytest.mark.parametrize(("command", "reason"), [("triage - </dev/null", "is empty"), ("metrics - <&-", "nothing is piped")])
def test_nothing_that_is_piped_in_is_said(command, reason):
    code, _, told = shell(f"$CK {command}")
    assert code == 2
    assert reason in told
    assert "Traceback" not in told


def test_what_is_piped_in_without_end_is_refused_and_not_copied_for_ever():
    code, _, told = shell("yes 'step 1 loss 0.5' | $CK triage -")
    assert code == 2
    assert "standard input has 269,484,032 bytes; the limit is 268,435,456" in told
    assert "every tenth step" in told


def test_no_copy_of_standard_input_stays(tmp_path):
    shell(f"{CLIMBING} | TMPDIR={tmp_path} $CK triage -")
    assert not list(tmp_path.iterdir())
