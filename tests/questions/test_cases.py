"""Built recordings: each question is answered as its case says, with numbers computed by hand."""

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ckaudit.audit.interview import answer
from ckaudit.contract.schema.report import Diagnosis, Finding
from ckaudit.questions import questions
from ckaudit.rules import rules
from tests.cases import run_of
from tests.loops import for_each

HERE = Path(__file__).parent
CASES: list[dict[str, Any]] = [
    case for path in sorted(HERE.glob("*.toml")) for case in tomllib.loads(path.read_text(encoding="utf-8"))["case"]
]
DIAGNOSIS = {
    "title": "It is.",
    "confidence": 0.9,
    "severity": "sev2",
    "symptom": "-",
    "knob": "-",
    "inspect": "-",
    "runbook": "-",
    "evidence": [],
}
MATRIX = {1: 6, 2: 6, 3: 6, 4: 6, 5: 5, 6: 5}  # questions of each phase of the playbook


@for_each("case", CASES)
def test_the_answer_is_the_one_expected(case):
    findings = [msgspec.convert(each, Finding) for each in case.get("findings", [])]
    diagnoses = [msgspec.convert({**DIAGNOSIS, **each}, Diagnosis) for each in case.get("diagnoses", [])]
    found = answer(questions()[case["id"]], run_of(case), findings, diagnoses)
    assert found.word == case["word"], found.sentence
    assert "broke" not in found.sentence
    assert case.get("says", "") in found.sentence
    assert "omits" not in case or case["omits"] not in found.sentence
    assert {name: found.numbers[name] for name in case.get("numbers", {})} == pytest.approx(case.get("numbers", {}), rel=1e-5)
    if "missing" in case:
        assert found.missing == case["missing"]


def test_the_whole_matrix_is_asked():
    wanted = {f"D{phase}.{number}" for phase, count in MATRIX.items() for number in range(1, count + 1)}
    wanted |= {f"MP-{number}" for number in range(1, 5)} | {f"MPC-{number}" for number in range(1, 6)}
    assert set(questions()) == wanted
    assert list(questions()) == sorted(wanted, key=lambda each: (each.startswith("M"), each.startswith("MPC"), each))


@for_each("row", [each for each in questions() if not each.startswith("MPC")])
def test_every_question_has_a_case_that_is_well_one_that_is_not_and_one_not_recorded(row):
    words = {case["word"] for case in CASES if case["id"] == row}
    assert {"good", "not_recorded"} <= words
    assert words & {"watch", "bad"}


@for_each("row", questions())
def test_every_question_says_what_it_looks_at_and_what_is_good_and_explains_its_limits(row):
    question = questions()[row]
    assert question.text.endswith("?")
    assert "## Looks at" in question.doc
    assert "## Good" in question.doc
    assert "## Bad" in question.doc or "## Watch" in question.doc
    assert f"playbook {'D' if row.startswith('D') else 'MP'}" in " ".join(question.doc.split())
    for name, default in question.thresholds.items():
        assert default is not None
        assert f"`{name}`" in question.doc, f"{row} does not explain {name}"


@for_each("row", questions())
def test_the_rules_that_bear_on_a_question_exist(row):
    assert set(questions()[row].rules) <= {rule.name for rule in rules().values()}


def test_limits_that_a_rule_has_too_are_the_rules_own():
    by_name = {rule.name: rule.thresholds for rule in rules().values()}
    shared = [
        ("D1.2", "far", "vanishing_gradient", "max_ratio"),
        ("D1.3", "dead", "dead_parameter", "max_dead_norm"),
        ("D1.5", "lowest", "update_out_of_band", "min_ratio"),
        ("D4.2", "starved", "vanishing_gradient", "max_ratio"),
        ("D3.2", "alike", "redundant_heads", "note_similarity"),
        ("D5.5", "bad", "probes_forgotten", "sev2_ratio"),
        ("D4.3", "bad", "exploding_gradient", "max_ratio"),
        ("D4.4", "deep", "frequent_clipping", "deep_coefficient"),
        ("D5.1", "max_rise", "overfitting", "min_rise"),
        ("D5.2", "max_rise", "overfitting", "min_rise"),
        ("D6.1", "flat", "overfitting", "min_rise"),
    ]
    for row, name, rule, threshold in shared:
        assert questions()[row].thresholds[name] == by_name[rule][threshold]
