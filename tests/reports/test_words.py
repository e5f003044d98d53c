import msgspec
import pytest

from ckaudit.contract.schema.report import Finding
from ckaudit.contract.summaries import most_missed
from ckaudit.reports import words
from tests.reports.sample import clean, empty, ill, skipped


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-3.0, "-3"),
        (999999, "999999"),
        (1e6, "1,000,000"),
        (2.0**60, "1.153e+18"),
        (1.23456e-7, "1.235e-07"),
        ("-Infinity", "-Infinity"),
    ],
)
def test_numbers_are_short_and_whole_ones_stay_whole(value, text):
    assert words.number(value) == text


@pytest.mark.parametrize(
    ("confidence", "word"),
    [
        (1.0, "very likely"),
        (0.9, "very likely"),
        (0.89, "likely"),
        (0.5, "as likely as not"),
        (0.2, "unlikely"),
        (0.0, "very unlikely"),
    ],
)
def test_confidence_is_said_on_the_scale_of_the_ipcc(confidence, word):
    assert words.likelihood(confidence) == f"{word}, {confidence:.2f}"


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ((None, None, None), ""),
        ((None, None, 7), "step 7"),
        ((5, None, None), "step 5"),
        ((5, 5, 5), "step 5"),
        ((5, 9, 9), "steps 5-9"),
    ],
)
def test_an_interval_is_said_no_longer_than_it_must(steps, text):
    first, last, worst = steps
    finding = Finding(code="A", name="a", severity="note", message="", first_step=first, last_step=last, worst_step=worst)
    assert words.interval(finding) == text


def test_a_cause_that_may_be_but_a_consequence_says_so():
    first = ill().diagnoses[0]
    assert words.standing(first) == words.likelihood(first.confidence)
    later = msgspec.structs.replace(first, confidence=0.95, may_follow="b")
    assert words.standing(later) == "very likely, 0.95; may follow from cause 1"


def test_explained_findings_are_not_listed_again():
    assert [finding.code for finding in words.unexplained(ill())] == ["ATT003"]


def test_the_missing_thing_that_feeds_most_checks_comes_first_and_the_graver_breaks_ties():
    report = msgspec.structs.replace(
        clean(),
        checks=[
            skipped("A", "not_recorded", "needs loss, norm"),
            skipped("B", "not_recorded", "needs norm"),
            skipped("C", "not_recorded", "needs rate", "sev0"),
            skipped("D", "too_few_points", "3 of 50"),
        ],
    )
    assert most_missed(report.checks) == [("norm", 2), ("rate", 1), ("loss", 1)]


def test_what_was_not_judged_is_counted_by_reason():
    assert words.not_judged(empty()) == "4 of 4 checks not judged: 2 not recorded, 1 disabled, 1 too few points"
    assert words.not_judged(clean()) == ""
