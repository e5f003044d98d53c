"""The labels of the lab: enough different truths, none too common, all written down."""

from collections import Counter

from ckaudit.causes.cause import causes
from ckaudit.lab.labels import SYMPTOMS, TRUTHS
from ckaudit.lab.specs import faults
from ckaudit.rules.rule import rules


def test_no_truth_is_common() -> None:
    assert max(Counter(fault.truth for fault in faults().values()).values()) <= 3


def test_no_acceptable_cause_is_the_truth_itself() -> None:
    assert not [name for name, fault in faults().items() if fault.truth in fault.acceptable]


def test_every_rule_of_the_auditor_is_a_symptom_of_the_lab() -> None:
    assert {rule.name for rule in rules().values()} <= SYMPTOMS.keys()


def test_every_cause_of_the_auditor_is_a_truth_of_the_lab() -> None:
    assert causes().keys() <= TRUTHS.keys()
