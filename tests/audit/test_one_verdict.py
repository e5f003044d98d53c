"""One verdict: what a question calls bad is a finding, and no question is good where a finding says otherwise.

The walk is over all questions and all rules, and over every recording that the cases of rules and questions build.
"""

import json
import tomllib
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from ckaudit.audit.engine import open_judged, triage_reads, triage_run
from ckaudit.audit.interview import answer
from ckaudit.audit.judge import kinds_of_questions
from ckaudit.contract.schema.report import SEVERITIES, Answer, Finding, Report
from ckaudit.explain.names import pages_of
from ckaudit.policy.acceptance import OPEN, AcceptanceCriteria
from ckaudit.policy.configure_rules import check
from ckaudit.policy.policy_schema import Ignore, Policy, PolicyClauses
from ckaudit.questions import questions
from ckaudit.questions.bad_answer_table import BAD
from ckaudit.questions.question import SeriesAnswer
from ckaudit.reports import render
from ckaudit.rules import rules
from tests.audit.judged import triage
from tests.cases import load, run_of
from tests.loops import check_each, for_each

HERE = Path(__file__).parents[1]
FIXTURES = HERE.parent / "fixtures"
NEVER_BAD = {"MP-1", "MP-2", "MP-3", "MPC-2", "MPC-3", "MPC-4", "MPC-5"}
ALL = range(1, 8)
PATTERNS = {"attention.*.kind_per_head": {"steps": [900], "labels": ["layer.0/head.0"], "values": [[3]]}}
FAR = {"train_loss_raw": {"steps": "1..400", "value": 3.0, "to": 1.0}, "parity_loss_diff": {"steps": [1], "values": [0.3]}}


def built() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted((HERE / "questions").glob("*.toml")):
        for case in tomllib.loads(path.read_text(encoding="utf-8"))["case"]:
            yield f"{case['id']}: {case['word']}", case


BUILT = dict(reversed([*built()]))  # the first of each word of each question


def answers_of(report: Report) -> dict[str, Answer]:
    return {each.id: each for phase in report.interview for each in phase.answers}


def audited(case: dict[str, Any], criteria: AcceptanceCriteria = OPEN) -> Report:
    return triage_run(replace(run_of(case), files=1), questions=ALL, criteria=criteria)


def hold_together(report: Report) -> None:
    """Assert that headline, answers and findings of a report say the same."""
    counted = {each.code: each for each in reversed(report.findings)}  # the gravest of each code
    grave = [each for each in report.findings if each.severity != "note"]
    bad = {id_ for id_, each in answers_of(report).items() if each.word == "bad"}
    for id_, each in answers_of(report).items():
        assert set(each.findings) <= set(counted), id_
        if each.word == "bad":
            assert each.findings, (id_, each.sentence)
            needed = min((SEVERITIES.index(counted[code].severity) for code in each.findings), default=9)
            assert needed <= SEVERITIES.index(BAD[id_].severity), (id_, each.findings)
        if each.word == "good":
            assert not {one.name for one in grave} & set(questions()[id_].rules), id_
    assert not ("Nothing wrong" in report.verdict and bad)
    ill = {id_ for id_ in bad if BAD[id_].severity != "note"}
    assert not ill or report.severity in ("sev0", "sev1", "sev2"), ill
    assert set(BAD) & set(counted) <= bad


def test_the_table_has_every_question_that_can_be_bad_and_names_what_exists():
    assert set(BAD) == set(questions()) - NEVER_BAD
    names = {rule.name: rule.severity for rule in rules().values()}
    for id_, bad in BAD.items():
        assert set(bad.means) <= set(questions()[id_].rules), id_
        assert all(names[each] != "note" for each in bad.means)
        assert bad.name not in names
        assert bad.severity == "note" or not id_.startswith(("D6", "MP"))
        for other in bad.covered_by:
            assert id_ not in BAD[other].covered_by
            assert SEVERITIES.index(BAD[other].severity) <= SEVERITIES.index(bad.severity)
        assert all(SEVERITIES.index(names[rule]) <= SEVERITIES.index(bad.severity) for rule in bad.covered_by_rules)
    assert len({bad.name for bad in BAD.values()}) == len(BAD)


@pytest.mark.parametrize("id_", questions())
def test_no_question_is_good_where_a_finding_of_its_rules_says_otherwise(id_, monkeypatch):
    monkeypatch.setattr(
        "ckaudit.audit.interview.answer_from_series", lambda *_: SeriesAnswer(word="good", sentence="all is well")
    )
    run = run_of({"name": "a", "scalars": {"train_loss_raw": {"steps": "1..100", "value": 3.0, "to": 1.0}}})
    for rule in rules().values():
        graver = SEVERITIES[SEVERITIES.index(rule.severity) : 3]
        for severity in graver if rule.name in questions()[id_].rules else graver[:1]:
            finding = Finding(code=rule.code, name=rule.name, severity=severity, message="it is ill", first_step=50)
            found = answer(questions()[id_], run, [finding], [])
            if rule.name in questions()[id_].rules:
                is_bad = severity != "sev2" or (id_ in BAD and rule.name in BAD[id_].means)
                assert found.word == ("bad" if is_bad else "watch"), rule.name
                assert found.findings == [rule.code]
            elif found.word != "good":
                assert rule.code in found.findings


@pytest.mark.parametrize("id_", BAD)
def test_a_bad_answer_that_no_rule_accounts_for_is_a_finding_by_the_table(id_, monkeypatch):
    if BAD[id_].judged_by_rules:
        pytest.skip("a rule finds all that makes it bad")
    mine = questions()[id_]

    def say(asked, *_):
        return SeriesAnswer(word="bad" if asked is mine else "not_recorded", sentence="7 of 9 do not")

    monkeypatch.setattr("ckaudit.audit.judge.answer_from_series", say)
    monkeypatch.setattr("ckaudit.audit.interview.answer_from_series", say)
    case = {"name": "a", "scalars": {"train_loss_raw": {"steps": "1..400", "value": 3.0, "to": 1.0}}}
    report = audited(case)
    (found,) = [each for each in report.findings if each.code == id_]
    assert (found.name, found.severity) == (BAD[id_].name, BAD[id_].severity)
    assert found.message == f"{BAD[id_].says}: 7 of 9 do not"
    hold_together(report)
    assert answers_of(report)[id_].findings == [id_]
    assert id_ in render(report, "json")
    assert any(case.get("classname") == id_ for case in ET.fromstring(render(report, "junit")).iter("testcase"))
    (result,) = [each for each in json.loads(render(report, "sarif"))["runs"][0]["results"] if each["ruleId"] == id_]
    assert result["level"] == {"sev1": "error", "sev2": "warning", "note": "note"}[found.severity]
    raised = audited(case, under(severities={id_: "sev0"}))
    assert next(each for each in raised.findings if each.code == id_).severity == "sev0"
    ways = ({"severities": {id_: "off"}}, {"ignore": [Ignore(code=id_, reason="we know")]}, {"select": ["LOSS*"]})
    quiet = audited(case, under(**ways[[*BAD].index(id_) % 3]))  # each of many questions is silenced in one of the ways
    assert id_ not in {each.code for each in quiet.findings}
    assert answers_of(quiet)[id_].word == "watch"
    hold_together(quiet)


def under(**clauses: Any) -> AcceptanceCriteria:
    policy = Policy(file="ckaudit.toml", base=PolicyClauses(**clauses), profiles={})
    return AcceptanceCriteria(policy=check(policy, rules().values(), list(kinds_of_questions())), today=date(2024, 1, 1))


@for_each("name", BUILT)
def test_headline_answers_and_findings_agree_on_every_recording_built_for_a_question(name):
    hold_together(audited(BUILT[name]))


def test_headline_answers_and_findings_agree_on_recordings_built_for_every_rule():
    """Hold together the first recording of each rule that it finds ill with such severities, and the first that it does not."""
    cases = {}
    for path in sorted((HERE / "rules").glob("*.toml")):
        for case in load(path)[1]:
            cases.setdefault((path.name, frozenset(finding.get("severity") for finding in case.expect)), case)
    check_each(cases.values(), lambda case: hold_together(triage_run(replace(case.run, files=1), questions=ALL)), name="case")


@pytest.mark.parametrize("name", sorted(path.parent.name for path in (FIXTURES / "runs").glob("*/expected.toml")))
def test_headline_answers_and_findings_agree_on_recorded_runs(name):
    report = triage(FIXTURES / "runs" / name, questions=ALL)
    hold_together(report)
    asked_nothing = triage(FIXTURES / "runs" / name)
    assert [each.code for each in asked_nothing.findings] == [each.code for each in report.findings]
    assert asked_nothing.verdict == report.verdict


@pytest.mark.parametrize("name", ["healthy", "float16_overflow", "experts_two_ranks"])
def test_no_question_makes_a_finding_of_a_healthy_run_at_any_step(name):
    run = open_judged(FIXTURES / "runs" / name, reads=triage_reads())
    for step in {int(run.last_step * share) for share in (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)}:
        assert not [each for each in triage_run(run, step=step).findings if each.code in BAD and each.severity != "note"]


def ill(told: str, **case: Any) -> Any:
    return pytest.param(case, id=told)


def course(*values: float) -> dict[str, Any]:
    return {"steps": list(range(1, len(values) + 1)), "values": list(values)}


WARMED = [1e-3 * min(1.0, step / 60) for step in range(1, 401)]
SPIKE = [2.5 + 8 * 0.975**step + (3.0 if 62 <= step <= 66 else 0.0) for step in range(1, 401)]
FALL = [2.5 + 8 * 0.95**step for step in range(1, 401)]
BLOCKS = [f"blocks.{place}.mlp.up.weight" for place in range(6)]


@pytest.mark.parametrize(
    "case",
    [
        ill("parity is 0.3 apart", name="a", scalars=FAR),
        ill("a replay is not identical", name="a", scalars={"replay_identical": {"steps": [10], "values": [0]}}),
        ill(
            "the loss stands from the first step on",
            name="a",
            scalars={"train_loss_raw": {"steps": "1..400", "value": 6.2, "noise": 0.01}},
        ),
        ill(
            "5 of 6 blocks are frozen",
            name="a",
            scalars={"train_loss_raw": FAR["train_loss_raw"]},
            sections={"weight_deltas.*.moved": {"steps": [100, 200], "labels": BLOCKS, "values": [[0.5, 0, 0, 0, 0, 0]] * 2}},
        ),
        ill(
            "no block moves",
            name="a",
            scalars={"train_loss_raw": FAR["train_loss_raw"]},
            sections={"weight_deltas.*.moved": {"steps": [100, 200], "labels": BLOCKS, "values": [[8e-7] * 6] * 2}},
        ),
        ill(
            "the embedding is frozen",
            name="a",
            scalars={"train_loss_raw": FAR["train_loss_raw"]},
            sections={
                "weight_deltas.*.moved": {
                    "steps": [300, 600],
                    "labels": ["tok_emb.weight", *BLOCKS],
                    "values": [[0, 1, 1, 1, 1, 1, 1]] * 2,
                }
            },
        ),
        ill(
            "only embeddings and norms move, in six blocks",
            name="a",
            scalars={"train_loss_raw": FAR["train_loss_raw"]},
            sections={
                "weight_deltas.*.moved": {
                    "steps": [300, 600],
                    "labels": ["tok_emb.weight", "norm.weight", *BLOCKS],
                    "values": [[1, 0.5, *[0.01] * 6]] * 2,
                }
            },
        ),
        ill(
            "the loss spikes by 3 nats at the peak of the rate",
            name="a",
            scalars={"train_loss_raw": course(*SPIKE), "learning_rate": course(*WARMED)},
        ),
        ill(
            "the decay gains nothing",
            name="a",
            scalars={
                "train_loss_raw": course(*FALL),
                "learning_rate": {"steps": "1..400", "value": 1e-3, "set": {"301..400": 1e-5}},
            },
        ),
    ],
)
def test_what_was_ok_and_bad_at_once_is_a_finding(case):
    report = audited(case)
    hold_together(report)
    assert report.severity in ("sev0", "sev1", "sev2"), report.verdict
    assert any(each.word == "bad" for each in answers_of(report).values())


def test_a_note_that_a_question_makes_stands_in_the_headline():
    report = triage_run(
        replace(run_of({"name": "a", "sections": PATTERNS, "scalars": {"train_loss_raw": FAR["train_loss_raw"]}}), files=1)
    )
    assert report.severity == "note"
    assert "D2.5: attention follows no pattern" in report.verdict
    assert "Nothing wrong" not in report.verdict


def test_a_policy_that_moves_the_limits_of_a_rule_moves_what_its_question_finds():
    rising = {"steps": "10..200:10", "value": 2.0, "set": {"150..200": 2.5}}
    case = {"name": "a", "scalars": {"train_loss_raw": {"steps": "1..200", "value": 3.0, "to": 0.5}, "val_loss": rising}}
    assert {"LOSS002"} & {each.code for each in audited(case).findings}
    for criteria in (
        under(thresholds={"overfitting": {"min_rise": 0.9, "min_gap_share": 0.9}}),
        under(severities={"LOSS002": "off"}),
    ):
        report = audited(case, criteria)
        assert not {"LOSS002", "D5.1"} & {each.code for each in report.findings if each.severity != "note"}
        hold_together(report)


def test_a_question_that_breaks_makes_the_audit_incomplete_without_being_asked(monkeypatch):
    def breaks(*_):
        raise ZeroDivisionError("no more")

    broken = {id_: replace(each, function=breaks) if id_ == "D2.1" else each for id_, each in questions().items()}
    monkeypatch.setattr("ckaudit.audit.judge.questions", lambda: broken)
    case = {"name": "a", "scalars": {"train_loss_raw": FAR["train_loss_raw"]}}
    (check_,) = [each for each in triage_run(run_of(case)).checks if each.code == "D2.1"]
    assert check_.outcome == "error"


@for_each("id_", BAD)
def test_a_bad_answer_is_explained_by_its_id_and_by_its_name(id_):
    page = next(each for each in pages_of(id_) if each.kind == "question")
    assert page.facts["a bad answer"].startswith(f"is the finding `{BAD[id_].name}`, {BAD[id_].severity}")
    assert any(each.name == id_ for each in pages_of(BAD[id_].name))


def test_what_nan_leaves_without_a_number_is_said_once(monkeypatch):
    nan = float("nan")
    case = {
        "name": "a",
        "scalars": {
            "train_loss_raw": {"steps": "1..100", "value": nan},
            "update_to_weight": {"steps": "10..100:10", "value": nan},
        },
        "sections": {
            "weight_deltas.*.moved": {"steps": "10..100:10", "labels": ["embed", "blocks.0.w", "blocks.1.w"], "value": nan},
            "gradients.*.norm": {"steps": "10..100:10", "labels": ["embed", "blocks.0.w", "blocks.1.w"], "value": nan},
        },
    }
    report = audited(case)
    assert "NUM001" in {found.code for found in report.findings}
    assert not [found for found in report.findings if "is a number" in found.message]
    hold_together(report)
