"""A policy of an earlier version holds, and says how its thresholds are called today."""

import tomllib

import pytest

from ckaudit.errors import UsageError
from ckaudit.policy.configure_rules import RENAMED_THRESHOLDS, with_present_names
from ckaudit.policy.policy_schema import Policy, PolicyClauses
from ckaudit.rules import rules


def policy_of(thresholds, **profiles):
    made = {name: PolicyClauses(thresholds=values) for name, values in profiles.items()}
    return Policy(file="ckaudit.toml", base=PolicyClauses(thresholds=thresholds), profiles=made)


def test_every_new_name_is_a_threshold_and_no_old_name_is_one():
    for name, table in tomllib.loads(RENAMED_THRESHOLDS.read_text()).items():
        known = next(rule.thresholds for rule in rules().values() if rule.name == name)
        assert set(table.values()) - {""} <= set(known)
        assert not set(table) & set(known)


def test_old_names_are_read_by_rule_or_code_in_every_profile():
    given = policy_of({"LOSS001": {"jump": 1.7, "k": 5.0}}, nano={"loss_spike": {"patience": 10}})
    made, hints = with_present_names(given, rules().values())
    assert made.base.thresholds == {"LOSS001": {"jump_ratio": 1.7, "k": 5.0}}
    assert made.profiles["nano"].thresholds == {"loss_spike": {"recovery_steps": 10}}
    wanted = ["jump is called jump_ratio now", "patience is called recovery_steps now"]
    assert [hint.rpartition(".")[2] for hint in hints] == wanted


def test_what_is_no_threshold_any_more_is_left_out_and_told():
    made, (hint,) = with_present_names(policy_of({"step_time_jump": {"even": 0.1}}), rules().values())
    assert made.base.thresholds == {"step_time_jump": {}}
    assert "no threshold any more" in hint


def test_an_old_and_a_new_name_together_are_refused():
    with pytest.raises(UsageError, match="set twice"):
        with_present_names(policy_of({"loss_spike": {"jump": 1.7, "jump_ratio": 1.6}}), rules().values())


def test_an_unknown_name_is_left_to_the_check():
    given = policy_of({"loss_spike": {"windows": 9}, "no_such_rule": {"a": 1}})
    assert with_present_names(given, rules().values()) == (given, [])


def test_the_command_says_the_new_name_and_judges_by_it(told):
    _, report, err = told("no_warmup_spike", policy="[thresholds.loss_spike]\njump = 1e9\nk = 1e9")
    assert "thresholds.loss_spike.jump is called jump_ratio now" in err
    assert "LOSS001" not in {each["code"] for each in report["findings"]}
