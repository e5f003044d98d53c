"""The interview on the command line: which phases are asked, what is printed, which code is returned."""

import json
from pathlib import Path

import msgspec
import pytest

from ckaudit.cli.options import phases, with_all_phases
from ckaudit.cli.run import run
from ckaudit.contract.schema.report import Report
from ckaudit.errors import UsageError
from tests.reports.interviewed import interviewed
from tests.reports.sample import clean, empty

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("", ()),
        ("3", (3,)),
        ("1,4", (1, 4)),
        ("1-3", (1, 2, 3)),
        ("6-7,1", (1, 6, 7)),
        ("4,4", (4,)),
        ("1-7", tuple(range(1, 8))),
    ],
)
def test_a_word_names_phases(word, found):
    assert phases(word) == found


@pytest.mark.parametrize("word", ["0", "8", "3-1", "1-", "-2", "1,,2", "a", "12", "1-9", "\u00b2"])
def test_another_word_is_an_error_with_a_hint(word):
    with pytest.raises(UsageError) as caught:
        phases(word)
    assert "1 to 7" in caught.value.hint


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["triage", "r", "--questions"], ["triage", "r", "--questions=1-7"]),
        (["triage", "--questions", "r"], ["triage", "--questions=1-7", "r"]),
        (["triage", "r", "--questions", "--step", "5"], ["triage", "r", "--questions=1-7", "--step", "5"]),
        (["triage", "r", "--questions", "1,4"], ["triage", "r", "--questions", "1,4"]),
        (["triage", "r", "--questions=2"], ["triage", "r", "--questions=2"]),
        (["triage", "--", "--questions"], ["triage", "--", "--questions"]),
    ],
)
def test_the_option_alone_asks_all(typed, meant):
    assert with_all_phases(typed) == meant


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ([], ()),
        (["--questions"], tuple(range(1, 8))),
        (["--questions", "3"], (3,)),
        (["--questions", "1,4", "--step", "9"], (1, 4)),
    ],
)
def test_phases_reach_the_engine(engine, options, asked):
    calls = engine(clean())
    run(["triage", "run", *options])
    assert calls[0][1]["questions"] == asked


def test_phases_that_do_not_exist_are_a_usage_error(capfd):
    assert run(["triage", str(RUNS / "healthy"), "--questions", "9"]) == 2
    assert "phases are 1 to 7" in capfd.readouterr().err


def test_all_phases_of_a_real_run_are_printed(capfd):
    assert run(["triage", "--questions", str(RUNS / "healthy")]) == 0
    out = capfd.readouterr().out
    for number in range(1, 8):
        assert f"Phase {number}: " in out
    for row in ("D1.1", "D4.2", "D6.1", "MP-1", "MPC-5", "MAP-1", "MAP-7"):
        assert row in out
    assert "Not yet ready for fine-tuning: go on with pretraining." in out
    assert " bad " not in out


def test_json_is_a_report_with_the_answers_and_markdown_a_table(capfd):
    assert run(["triage", str(RUNS / "overfit_tiny"), "--questions", "5", "-f", "json"]) == 0
    out = capfd.readouterr().out
    report = msgspec.json.decode(out, type=Report)
    (phase,) = report.interview
    answer = phase.answers[0]
    assert (phase.number, answer.id, answer.word, answer.findings) == (5, "D5.1", "bad", ["LOSS002"])
    assert json.loads(out)["interview"][0]["answers"][0]["numbers"]["gap"] == answer.numbers["gap"]
    run(["triage", str(RUNS / "overfit_tiny"), "--questions", "5", "-f", "markdown"])
    out = capfd.readouterr().out
    assert "**Phase 5: Does it generalize?**" in out
    assert "| <code>D5.1</code> Does it overfit? | **bad** | LOSS002 from step" in out


def test_the_code_is_that_of_the_findings(capfd):
    assert run(["triage", str(RUNS / "lr_too_high"), "--questions", "6"]) == 1
    assert "Not ready for fine-tuning." in capfd.readouterr().out


def test_an_answer_is_something_judged(engine):
    engine(msgspec.structs.replace(empty(), interview=interviewed().interview))
    assert run(["triage", "run", "--questions"]) == 0


@pytest.mark.parametrize("row", ["D4.2", "d4.2", "MP-4", "MPC-1"])
def test_a_question_is_explained(row, capfd):
    assert run(["explain", row]) == 0
    out = capfd.readouterr().out
    assert out.split()[0] == row.upper()
    for word in ("Looks at", "Good", "phase", "ckaudit triage RUN --questions", "needs"):
        assert word in out
