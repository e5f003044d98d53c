import xml.etree.ElementTree as ET

import msgspec
import pytest

from ckaudit.contract.schema.report import SEVERITIES, Check, PolicyUsed
from ckaudit.reports import render
from ckaudit.reports.view import View
from tests.junit_schema import junit_schema
from tests.reports.sample import SAMPLES, clean, empty, gated, ill, invalid


def parse(report, view=None):
    return ET.fromstring(render(report, "junit", view or View()))


@pytest.fixture(scope="module")
def schema():
    return junit_schema()


@pytest.mark.parametrize("name", SAMPLES)
def test_output_keeps_the_schema(name, schema):
    schema.validate(render(SAMPLES[name](), "junit"))


def test_the_schema_refuses_what_it_does_not_know(schema):
    assert not schema.is_valid('<testsuites><testsuite name="a" tests="1"><verdict/></testsuite></testsuites>')


@pytest.mark.parametrize("name", SAMPLES)
def test_the_totals_are_those_of_the_cases(name):
    root = parse(SAMPLES[name]())
    cases = root.findall("testsuite/testcase")
    assert int(root.get("tests")) == len(cases) == sum(int(suite.get("tests")) for suite in root)
    assert all(int(suite.get("skipped")) == len(suite.findall("testcase/skipped")) for suite in root)
    assert int(root.get("failures")) == sum(case.find("failure") is not None for case in cases)


def test_a_failed_check_lists_its_findings_and_a_clean_one_is_empty():
    suites = {suite.get("name"): suite.find("testcase") for suite in parse(invalid(), View(base="runs/broken"))}
    assert len(suites["SCH004"].find("failure").text.splitlines()) == 2
    assert suites["SCH004"].find("failure").text.startswith("runs/broken/analysis_checkpoint_step_00000100.json:41")
    assert len(suites["SYN010"]) == 0


def test_a_skipped_check_says_why():
    assert [case.get("message") for case in parse(empty()).iter("skipped")] == [
        "not_recorded: gradients.*.norm",
        "not_recorded: gradients.*.norm",
        "too_few_points: 1 of 50 points",
        "disabled",
    ]


def test_what_is_accepted_is_skipped_with_the_reason_and_fails_nothing():
    root = parse(gated())
    cases = {case.get("classname"): case for case in root.iter("testcase")}
    assert cases["GRAD002"].find("skipped").get("message") == "1 finding accepted: accepted in known.json"
    assert "(until 2027-01-31)" in cases["ATT003"].find("skipped").get("message")
    assert "1 entry of known.json matches nothing any more" in cases["ckaudit"].find("skipped").get("message")
    assert root.get("failures") == "1"


def test_a_broken_check_is_an_error():
    broken = Check(code="X001", name="x", title="x", severity="sev2", outcome="error", detail="KeyError: 'loss'")
    root = parse(msgspec.structs.replace(clean(), checks=[broken]))
    assert root.get("errors") == "1"
    assert root.find("testsuite/testcase/error").get("message") == "KeyError: 'loss'"


def test_a_finding_without_a_check_still_fails():
    root = parse(msgspec.structs.replace(invalid(), checks=[]), View(fail_on="sev2"))
    assert sorted(suite.get("name") for suite in root) == ["SCH003", "SCH004", "SCH008", "SYN005", "SYN009"]
    assert root.get("failures") == "5"


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("least", SEVERITIES)
def test_a_case_fails_exactly_where_a_finding_is_as_grave_as_was_asked(name, least):
    report = SAMPLES[name]()
    root = parse(report, View(fail_on=least))
    grave = {each.code for each in report.findings if SEVERITIES.index(each.severity) <= SEVERITIES.index(least)}
    assert {case.get("classname") for case in root.iter("testcase") if case.find("failure") is not None} == grave
    assert int(root.get("failures")) == len(grave)


def test_what_is_milder_stands_in_the_output_of_a_case_that_passes():
    (case,) = [case for case in parse(ill()).iter("testcase") if case.get("classname") == "ATT003"]
    assert case.find("failure") is None
    assert case.find("system-out").text.splitlines()[0] == "sev2, which does not fail:"
    assert "head 2 of blocks.1 spreads its attention evenly" in case.find("system-out").text


def test_the_policy_says_what_fails_where_nobody_asks():
    policy = PolicyUsed(file="ckaudit.toml", changes=[], fail_on="sev0")
    assert parse(msgspec.structs.replace(ill(), policy=policy)).get("failures") == "0"


def test_no_character_that_xml_forbids_comes_through():
    report = invalid()
    findings = [msgspec.structs.replace(report.findings[0], message="a\x00b\ufffe\ud800")]
    root = parse(msgspec.structs.replace(report, findings=findings))
    failure = root.find("testsuite[@name='SCH004']/testcase/failure")
    assert "a\\x00b?\\ud800" in failure.text
    assert failure.get("message") == "a\\x00b?\\ud800"
