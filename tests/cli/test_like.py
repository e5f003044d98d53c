"""`--like` on the command line: patterns, what is told, what is refused, and names that nobody should trust."""

import json
import shutil
from pathlib import Path

import pytest

import ckaudit
from ckaudit.cli.run import run

PAIRS = Path(__file__).parents[2] / "fixtures" / "pairs"
REPLICAS = str(PAIRS / "replica*")


def test_a_quoted_pattern_names_the_siblings(capfd):
    code = run(["triage", str(PAIRS / "lr_doubled"), "--like", REPLICAS, "--like", str(PAIRS / "base"), "--fail-on", "sev2"])
    shown = " ".join(capfd.readouterr().out.split())
    assert code == 1
    assert "SIB007 learning_rate_unlike_siblings, steps 500-700" in shown
    assert "held against 3 healthy siblings" in shown


def test_json_has_each_sibling_and_none_without_the_option(capfd):
    run(["triage", str(PAIRS / "base"), "--like", REPLICAS, "-f", "json"])
    report = json.loads(capfd.readouterr().out)
    assert [(Path(sibling["run"]).name, sibling["counts"]) for sibling in report["siblings"]] == [
        ("replica", True),
        ("replica_2", True),
    ]
    run(["triage", str(PAIRS / "base"), "-f", "json"])
    assert "siblings" not in json.loads(capfd.readouterr().out)


def test_a_pattern_that_matches_nothing_is_refused(capfd):
    assert run(["triage", str(PAIRS / "base"), "--like", str(PAIRS / "nothing*")]) == 2
    assert "matches nothing" in capfd.readouterr().err


@pytest.mark.parametrize("question", [["--event", "last"], ["--benchmark-drop"]])
def test_other_questions_know_no_siblings(capfd, question):
    assert run(["triage", str(PAIRS / "base"), "--like", REPLICAS, *question]) == 2
    assert f"--like has no meaning with {question[0]}" in capfd.readouterr().err


@pytest.mark.parametrize("form", ["terminal", "markdown", "brief", "github", "junit"])
def test_a_hostile_name_of_a_sibling_is_text(tmp_path, capfd, form):
    shutil.copytree(PAIRS / "replica", tmp_path / "a\x1b[31m<b>sibling")
    shutil.copytree(PAIRS / "tokenizer", tmp_path / "b\x1b[31m<i>other")
    run(["triage", str(PAIRS / "base"), "--like", str(tmp_path / "*"), "-f", form])
    shown = capfd.readouterr().out
    assert "\x1b[31m" not in shown
    assert form in ("terminal", "brief", "github") or "<b>sibling" not in shown


def test_the_first_page_of_a_report_tells_of_siblings(tmp_path, capfd):
    page = tmp_path / "page.md"
    assert run(["report", str(PAIRS / "lr_doubled"), "--like", REPLICAS, "-o", str(page)]) == 0
    assert "SIB004" in page.read_text() or "SIB007" in page.read_text()
    assert "error" not in capfd.readouterr().err


def test_the_function_takes_runs_and_patterns():
    audit = ckaudit.triage(PAIRS / "lr_doubled", like=[REPLICAS, ckaudit.read_run(PAIRS / "base")], policy=False)
    assert {finding.code for finding in audit.findings} >= {"SIB004", "SIB007"}
    assert len(ckaudit.triage(PAIRS / "base", like=REPLICAS, policy=False).report.siblings) == 2
