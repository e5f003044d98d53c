"""The brief says the same as JSON, gravest first, in under 400 tokens of four characters, whatever it is of."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckaudit.audit import triage
from ckaudit.audit.coverage.recorded import coverage
from ckaudit.diff.compare import compare, compare_canary
from ckaudit.diff.gate import gated
from ckaudit.explain import explain, groups, known_names
from ckaudit.policy.policy_schema import GateTerms
from ckaudit.reports import render
from ckaudit.reports.brief.text_budget import clipped, fitted
from tests.in_process import ckaudit
from tests.reports.diff.sample import SAMPLES as COMPARISONS
from tests.reports.test_hostile import ANYTHING, reports

ROOT = Path(__file__).parents[2]
RUNS = sorted(path for path in (ROOT / "fixtures/runs").iterdir() if path.is_dir() and path.name != "__pycache__")
MOST = 1600
WORDS = {None: ("OK", "LIMITED", "NOT JUDGED"), "note": ("NOTE", "LIMITED")}


@pytest.mark.parametrize("questions", [(), range(1, 8)], ids=["findings", "questions"])
@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_the_brief_of_a_run_says_what_json_says(run, questions):
    report = triage(run, questions=questions)
    told, whole = render(report, "brief"), json.loads(render(report, "json"))
    assert len(told) < MOST
    first = told.splitlines()[0]
    severity = whole["severity"]
    assert first.startswith(WORDS.get(severity) or severity.upper())
    assert f" at step {whole['step']}: " in first
    codes = list(dict.fromkeys(finding["code"] for finding in whole["findings"]))
    if not questions and codes:
        rows = [line.split()[:2] for line in told.splitlines()]
        shown = [code for severity, code in rows if severity in ("sev0", "sev1", "sev2", "note") and code in codes]
        assert shown == codes[: len(shown)]
        assert shown or f"and {len(codes)} more: " in told
        assert len(shown) == len(codes) or f"and {len(codes) - len(shown)} more: {codes[len(shown)]}" in told
    if not questions:
        for rank, diagnosis in enumerate(whole["diagnoses"][:3], 1):
            (line,) = [line for line in told.splitlines() if line.startswith(f"cause {rank}: ")]
            assert diagnosis["cause"] in line
            assert f"{diagnosis['confidence']:.2f}" in line
            assert diagnosis["knob"][:40] in line


def test_the_counts_of_what_could_not_be_judged_are_those_of_json():
    run = ROOT / "fixtures/real/hf_trainer/mistral_lora_4ep"
    told = ckaudit("triage", run, "--format", "brief").stdout
    whole = json.loads(ckaudit("triage", run, "--format", "json").stdout)
    skipped = [check for check in whole["checks"] if check["outcome"] == "skipped"]
    vital = [check["name"] for check in whole["vital"] if check["outcome"] == "not_judged"]
    assert told.startswith("LIMITED at step ")
    assert f"{len(skipped)} of {len(whole['checks'])} checks not judged: " in told
    assert f"vital ones among them: {', '.join(vital)}" in told
    assert whole["to_judge_more"] in told


def test_the_command_that_tells_more_can_be_copied():
    told = ckaudit("triage", RUNS[0], "--format", "brief").stdout.splitlines()[-1]
    commands = told.removeprefix("more: ").split("; ")
    for command in commands:
        program, *arguments = command.split()
        assert program == "ckaudit"
        assert ckaudit(*arguments).returncode in (0, 1)


def test_a_comparison_names_both_runs_what_is_worse_and_where_they_part():
    healthy, ill = ROOT / "fixtures/runs/healthy", ROOT / "fixtures/runs/lr_too_high"
    told = ckaudit("diff", healthy, ill, "--format", "brief")
    whole = json.loads(ckaudit("diff", healthy, ill, "--format", "json").stdout)
    (pair,) = whole["pairs"]
    assert told.returncode == 1
    assert len(told.stdout) < MOST
    assert told.stdout.startswith("WORSE: ")
    assert f"A: {healthy}; B: {ill}" in told.stdout
    assert pair["parting"]["message"] in told.stdout
    worse = [answer["question"] for answer in pair["answers"] if answer["word"] == "worse"]
    assert all(name in told.stdout or name.replace("_", " ") in told.stdout for name in worse)
    assert "config.peak 0.0125 | 1.25" in told.stdout


def test_a_gate_begins_with_its_word():
    canary, good = ROOT / "fixtures/runs/overfit_tiny", ROOT / "fixtures/runs/healthy"
    comparison = gated(compare_canary(canary, [good]), GateTerms(), policy=None)
    told = render(comparison, "brief")
    assert told.startswith("FAIL: ")
    assert comparison.gate.outcome == "failed"
    assert len(told) < MOST


def test_several_subjects_have_a_line_each():
    runs = [ROOT / "fixtures/runs" / name for name in ("healthy", "lr_too_high", "overfit_tiny")]
    told = render(compare(runs), "brief")
    assert [line.split()[:2] for line in told.splitlines()[1:3]] == [["worse", str(run)] for run in runs[1:]]


@settings(max_examples=40, deadline=None)
@given(report=reports(), words=st.lists(ANYTHING, min_size=3, max_size=3), times=st.sampled_from([1, 7, 200]))
def test_nothing_makes_a_brief_longer_than_it_may_be(report, words, times):
    verdict, knob, inspect = (f"{word} " * times for word in words)
    diagnoses = [msgspec.structs.replace(each, knob=knob, inspect=inspect) for each in report.diagnoses] * 3
    long = msgspec.structs.replace(report, verdict=verdict, diagnoses=diagnoses, response=[knob], notes=[inspect] * 5)
    assert len(render(long, "brief")) < MOST


@pytest.mark.parametrize("name", sorted(COMPARISONS))
def test_no_comparison_is_longer_than_it_may_be(name):
    assert len(render(COMPARISONS[name](), "brief")) < MOST


def test_every_name_is_explained_briefly():
    for name in known_names():
        pages = explain([name])
        told = render(pages, "brief", kind="Pages")
        assert len(told) < MOST
        assert pages[0].title[:40] in told or "..." in told.splitlines()[0]
    assert len(render(groups(), "brief", kind="Groups")) < MOST
    assert len(render(explain(["LOSS001", "M19", "D1.5", "SCH001", "TRI-4"]), "brief", kind="Pages")) < MOST


@pytest.mark.parametrize("run", ["runs/healthy", "real/hf_trainer/mistral_lora_4ep", "checkpoints/valid/minimal.json"])
def test_coverage_names_the_musts_that_are_missing(run):
    document = coverage(ROOT / "fixtures" / run)
    told = render(document, "brief")
    assert len(told) < MOST
    assert all(row.name in told for row in document.missing("must")[:8])


def test_a_long_line_ends_after_a_word_and_a_list_says_how_much_is_left():
    assert clipped("a bb ccc dddd", 9) == "a bb..."
    assert clipped("x" * 20, 10) == "x" * 7 + "..."
    text = fitted(["head"], {name: name * 30 for name in "abcdefgh"}, ["tail"], limit=120)
    assert text.splitlines() == ["head", "a" * 30, "b" * 30, "and 6 more: c, d, e, f, g, h", "tail"]
    assert len(text) <= 120
