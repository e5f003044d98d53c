import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from ckaudit.contract.report import Check
from ckaudit.reports import render
from ckaudit.reports.view import View
from tests.reports.sample import SAMPLES, clean, empty, invalid

XS = "{http://www.w3.org/2001/XMLSchema}"
SCHEMA = ET.parse(Path(__file__).parents[2] / "fixtures" / "vendor" / "junit-10.xsd").getroot()


def parse(report, view=None):
    return ET.fromstring(render(report, "junit", view or View()))


def declared(tag):
    """Return the attributes the schema allows and demands of an element, and the children it allows."""
    element = next(each for each in SCHEMA.findall(f"{XS}element") if each.get("name") == tag)
    attributes = list(element.iter(f"{XS}attribute"))
    required = {each.get("name") for each in attributes if each.get("use") == "required"}
    return {each.get("name") for each in attributes}, required, {each.get("ref") for each in element.iter(f"{XS}element")}


@pytest.mark.parametrize("name", SAMPLES)
def test_elements_and_attributes_are_those_the_schema_declares(name):
    for element in parse(SAMPLES[name]()).iter():
        allowed, required, children = declared(element.tag)
        assert required <= set(element.attrib) <= allowed
        assert {child.tag for child in element} <= children


@pytest.mark.parametrize("name", SAMPLES)
def test_the_totals_are_those_of_the_cases(name):
    root = parse(SAMPLES[name]())
    cases = root.findall("testsuite/testcase")
    assert int(root.get("tests")) == len(cases) == sum(int(suite.get("tests")) for suite in root)
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


def test_a_broken_check_is_an_error():
    broken = Check(code="X001", name="x", title="x", severity="sev2", outcome="error", detail="KeyError: 'loss'")
    root = parse(msgspec.structs.replace(clean(), checks=[broken]))
    assert root.get("errors") == "1"
    assert root.find("testsuite/testcase/error").get("message") == "KeyError: 'loss'"


def test_a_finding_without_a_check_still_fails():
    root = parse(msgspec.structs.replace(invalid(), checks=[]))
    assert sorted(suite.get("name") for suite in root) == ["SCH003", "SCH004", "SCH008", "SYN005", "SYN009"]
    assert root.get("failures") == "5"


def test_no_character_that_xml_forbids_comes_through():
    report = invalid()
    findings = [msgspec.structs.replace(report.findings[0], message="a\x00b\ufffe\ud800")]
    root = parse(msgspec.structs.replace(report, findings=findings))
    failure = root.find("testsuite[@name='SCH004']/testcase/failure")
    assert "a\\x00b?\\ud800" in failure.text
    assert failure.get("message") == "a\\x00b?\\ud800"
