"""Pipes, sockets and devices are refused before they are opened: a pipe that nobody writes to would never end."""

import os
import shutil
import signal
import socket
from pathlib import Path

import pytest

from ckaudit.cli.app import COMMANDS, GROUPS
from ckaudit.cli.run import run

BASE = Path(__file__).parents[2] / "fixtures" / "pairs" / "base"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with special files, in which nothing may take longer than some seconds."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
    shutil.copytree(BASE, "run")
    Path("text.txt").write_text("a document")
    signal.alarm(60)
    yield tmp_path
    signal.alarm(0)


READ = (
    "triage",
    "validate",
    "watch",
    "fleet",
    "metrics",
    "report -o out.html",
    "diff run",
    "gate run --against",
    "coverage",
    "convert -o out",
    "import",
    "export -o out.csv",
    "data",
    "data text.txt",
    "data text.txt --validation",
    "data text.txt --reference",
    "hash",
    "resume-check",
    "probe toxicity",
    "probe memorization",
)
NO_FILES = {"fleet query", "explain", "drill", "push", "mcp", "docs"}  # what these are given is no file to be read


def test_every_command_that_reads_is_asked():
    assert {words.split()[0] for words in READ} == {*COMMANDS, *GROUPS} - NO_FILES - {"lab"}


@pytest.mark.parametrize("name", ["pipe", "socket", "/dev/zero", "/dev/null"])
@pytest.mark.parametrize("words", READ)
def test_no_command_waits_for_a_special_file(capfd, words, name):
    assert run([*words.split(), name]) == 2
    told = capfd.readouterr().err
    assert "error: " in told
    assert "bug" not in told


@pytest.mark.parametrize("words", ["triage run --baseline pipe", "hash --check pipe", "triage run --config pipe", "data pipe"])
def test_nor_does_an_option(capfd, words):
    assert run(words.split()) in (1, 2)
    assert "bug" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "name", ["run.json", "scalars-2.jsonl", "analysis_checkpoint_step_00000001.json", "reference.npz", "x.csv"]
)
def test_a_pipe_in_a_run_folder_costs_itself(capfd, name):
    (Path("run") / name).unlink(missing_ok=True)
    os.mkfifo(f"run/{name}")
    assert run(["triage", "run", "--fail-on", "sev0"]) == 0
    assert ("is not a regular file" in capfd.readouterr().out) is (name not in ("reference.npz", "x.csv"))


@pytest.mark.parametrize("words", [["triage", ""], ["validate", ""], ["diff", "a", ""], ["gate", "a", "b", ""], ["fleet", ""]])
def test_an_empty_argument_is_no_folder(words, capsys):
    assert run(words) == 2
    assert "is empty" in capsys.readouterr().err
