"""Without --format, the suffix of --output decides what is written, in every command that writes a file."""

import json
from xml.etree import ElementTree as ET

import pytest

from tests.in_process import ckaudit

RUN = "fixtures/runs/lr_too_high"
COMMANDS = {
    "triage": [RUN],
    "validate": [RUN],
    "diff": [RUN, "fixtures/runs/healthy"],
    "gate": [RUN, "--against", "fixtures/runs/healthy"],
    "metrics": [RUN, "train_loss_raw"],
}


def is_json(text):
    return isinstance(json.loads(text), dict)


@pytest.mark.parametrize("command", COMMANDS)
def test_json_is_json(tmp_path, command):
    file = tmp_path / "x.json"
    ckaudit(command, *COMMANDS[command], "-o", str(file))
    assert is_json(file.read_text())


@pytest.mark.parametrize(
    ("suffix", "holds"),
    [
        (".sarif", lambda text: json.loads(text)["version"] == "2.1.0"),
        (".sarif.json", lambda text: json.loads(text)["version"] == "2.1.0"),
        (".xml", lambda text: ET.fromstring(text).tag == "testsuites"),
        (".MD", lambda text: text.startswith("#")),
        (".txt", lambda text: "What to do now" in text),
        ("", lambda text: "What to do now" in text),
    ],
)
def test_each_suffix_of_triage(tmp_path, suffix, holds):
    file = tmp_path / f"x{suffix}"
    ckaudit("triage", RUN, "-o", str(file))
    assert holds(file.read_text())


def test_a_named_format_wins(tmp_path):
    file = tmp_path / "x.json"
    ckaudit("triage", RUN, "-f", "markdown", "-o", str(file))
    assert file.read_text().startswith("#")


def test_a_suffix_that_the_command_does_not_write_is_refused_before_the_work(tmp_path):
    result = ckaudit("triage", RUN, "-o", str(tmp_path / "x.html"))
    assert result.returncode == 2
    assert "error: this command writes no .html" in result.stderr
    assert "ckaudit report draws a run as html" in result.stderr
    assert not (tmp_path / "x.html").exists()
