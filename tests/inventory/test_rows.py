"""Every row of the playbook's inventory is answered: fed with data, it fires where it must and is silent where it judged."""

import re
from itertools import chain

import pytest

from ckaudit.audit.playbook import ACTIONS, CONDITIONS, FIRST_LOOK, WITH_CAUSE
from ckaudit.causes import causes
from ckaudit.contract.schema.report import SEVERITIES
from ckaudit.explain import explain
from ckaudit.questions import questions
from ckaudit.rules import rules
from tests.inventory import test_procedures
from tests.inventory.sources import ids, report, table
from tests.loops import for_each

LOOKS, POLICY = table("first_look"), table("policy")
MATRIX = {row: words for phase in table("matrix").values() for row, words in phase.items()}
RULES = [(row, code, spec) for row, each in (LOOKS | POLICY).items() for code, spec in each["rules"].items()]
ANSWERS = [(row, word, source) for row, words in MATRIX.items() for word, sources in words.items() for source in sources]


def severity_of(row, spec):
    return spec.get("severity") or row.partition("-")[0].lower()


def test_every_row_is_in_a_table_and_every_table_holds_rows_only():
    answered = {*LOOKS, *POLICY, *MATRIX, *test_procedures.ROWS}
    assert answered == set(ids())
    assert len(ids()) == 90


def test_every_row_has_a_page():
    elsewhere = {row for row in ids() if row.startswith(("CAD", "TRG"))}
    for row in ids().keys() - elsewhere:
        (page,) = explain([row])
        assert row in (page.name, *page.ids)


@for_each(("row", "code", "source"), [(*each[:2], source) for each in RULES for source in each[2]["ill"]])
def test_the_rule_of_a_row_fires_with_its_severity(row, code, source):
    found = [each.severity for each in report(source).findings if each.code == code]
    assert severity_of(row, (LOOKS | POLICY)[row]["rules"][code]) in found, found


@for_each(("row", "code", "source"), [(*each[:2], source) for each in RULES for source in each[2]["well"]])
def test_the_rule_of_a_row_is_silent_where_it_judged(row, code, source):
    wanted = severity_of(row, (LOOKS | POLICY)[row]["rules"][code])
    (check,) = [each for each in report(source).checks if each.code == code]
    assert check.outcome in ("passed", "failed"), check
    found = [each.severity for each in report(source).findings if each.code == code]
    assert all(SEVERITIES.index(each) > SEVERITIES.index(wanted) for each in found)
    if row != "SEV1-1":  # a single spike is less than repeated ones
        assert check.outcome == "passed"


@pytest.mark.parametrize(("row", "source"), [(row, source) for row, each in LOOKS.items() for source in each["ill"]])
def test_the_diagnosis_says_what_the_row_says(row, source):
    first = report(source).diagnoses[0]
    assert first.cause == LOOKS[row]["cause"]
    assert first.confidence > 0.5
    assert first.symptom in {each.message for each in report(source).findings}
    for part in ("knob", "inspect"):
        assert not [word for word in LOOKS[row][part] if word not in getattr(first, part).lower()]
    assert not [word for word in LOOKS[row].get("seen", []) if word not in first.symptom]


@pytest.mark.parametrize(("row", "source"), [(row, source) for row, each in LOOKS.items() for source in each["well"]])
def test_the_cause_of_a_row_stays_away(row, source):
    assert LOOKS[row]["cause"] not in [each.cause for each in report(source).diagnoses]


@for_each(("row", "word", "source"), ANSWERS)
def test_a_question_is_answered(row, word, source):
    found = report(source, row if source.startswith("questions/") else "")
    (answer,) = [each for phase in found.interview for each in phase.answers if each.id == row]
    assert answer.word == word, answer.sentence


@for_each("row", MATRIX)
def test_every_question_has_a_good_and_a_bad_case(row):
    assert row in questions()
    assert "good" in MATRIX[row]
    assert "bad" in MATRIX[row] or (row.startswith("MP") and "watch" in MATRIX[row])


@pytest.mark.parametrize("look", FIRST_LOOK, ids=lambda look: look.row)
def test_a_first_look_names_what_its_row_is_tested_with(look):
    names = {rule.name for rule in rules().values()}
    assert set(look.rules) <= names
    assert set(look.causes) <= set(causes())
    assert look.causes[0] == LOOKS[look.row]["cause"]
    assert {rules()[code].name for code in LOOKS[look.row]["rules"]} <= set(look.rules) | {"exploding_gradient"}
    explained = {rule.name for cause in look.causes for rule in causes()[cause].explains}
    assert set(look.rules) & explained


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda condition: condition.row)
def test_a_condition_has_rules_that_may_be_as_grave_and_an_action(condition):
    by_name = {rule.name: rule for rule in rules().values()}
    tested = {rules()[code].name for code in POLICY[condition.row]["rules"]}
    assert tested <= set(condition.rules)
    assert all(by_name[name].severity <= condition.severity for name in condition.rules)


@pytest.mark.parametrize("row", POLICY)
def test_the_action_of_a_severity_is_said(row):
    level = row.partition("-")[0].lower()
    for source in chain.from_iterable(spec["ill"] for spec in POLICY[row]["rules"].values()):
        found = report(source)
        known = found.diagnoses and found.diagnoses[0].confidence >= 0.5
        action = (WITH_CAUSE if known else ACTIONS)[found.severity]
        assert found.response[0].startswith(f"{found.severity}: {action}")
        assert found.severity <= level
    (page,) = explain([row])
    assert re.sub(r"\W", "", page.sections[0].text.lower()) == re.sub(r"\W", "", ACTIONS[level].lower())
