import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

import jsonschema
import msgspec
import pytest

from ckaudit.contract.schema.report import Check, place_key
from ckaudit.reports import render
from ckaudit.reports.view import View
from tests.reports.sample import SAMPLES, gated, ill, invalid

VENDOR = Path(__file__).parents[2] / "fixtures" / "vendor"


def run_of(report, view=None):
    return json.loads(render(report, "sarif", view or View()))["runs"][0]


@pytest.mark.parametrize("name", SAMPLES)
def test_output_keeps_the_official_schema(name):
    schema = json.loads((VENDOR / "sarif-2.1.0-rtm.5.json").read_text())
    jsonschema.Draft4Validator.check_schema(schema)
    jsonschema.Draft4Validator(schema, format_checker=jsonschema.FormatChecker()).validate(
        json.loads(render(SAMPLES[name](), "sarif"))
    )


def test_severities_become_levels():
    levels = {result["ruleId"]: result["level"] for result in run_of(ill())["results"]}
    assert levels == {"LOSS002": "error", "GRAD002": "error", "ATT003": "warning"}


def test_every_result_points_at_its_own_rule_and_no_rule_is_idle():
    run = run_of(invalid())
    rules = run["tool"]["driver"]["rules"]
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in run["results"])
    assert {rule["id"] for rule in rules} == {result["ruleId"] for result in run["results"]}


def test_addresses_are_relative_and_decode_to_the_file():
    places = [result["locations"][0]["physicalLocation"] for result in run_of(invalid(), View(base="runs/broken"))["results"]]
    addresses = [place["artifactLocation"]["uri"] for place in places]
    assert unquote(addresses[4]) == "runs/broken/odd,name:100%\n.json"
    assert all(":" not in address and not address.startswith("/") for address in addresses)
    assert [place["region"]["startLine"] for place in places] == [41, 1, 7, 12, 1, 44]


def addresses_of(run):
    """Return the whole address of each result, as a reader resolves it."""
    bases = {name: base["uri"] for name, base in run.get("originalUriBaseIds", {}).items()}
    places = [result["locations"][0]["physicalLocation"]["artifactLocation"] for result in run["results"]]
    return [bases[place["uriBaseId"]] + place["uri"] if "uriBaseId" in place else place["uri"] for place in places]


@pytest.mark.parametrize("base", ["{}/odd run", "../odd run"])
def test_a_folder_outside_the_working_folder_is_named_once_and_files_resolve_to_it(base, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    run = run_of(invalid(), View(base=base.format(tmp_path)))
    assert [*run["originalUriBaseIds"]] == ["RUN"]
    file = tmp_path / "odd run" / "analysis_checkpoint_step_00000100.json"
    assert Path(unquote(urlsplit(addresses_of(run)[0]).path)) == file
    assert urlsplit(addresses_of(run)[0]).scheme == "file"


def test_a_single_file_outside_the_working_folder_keeps_its_whole_address():
    report = invalid()
    finding = msgspec.structs.replace(report.findings[0], file="/data/run.json")
    assert addresses_of(run_of(msgspec.structs.replace(report, findings=[finding]))) == ["file:///data/run.json"]


def test_the_run_says_what_was_audited():
    assert run_of(ill())["automationDetails"]["description"]["text"] == "ckaudit triage runs/nano"


def test_a_finding_points_at_the_line_that_was_looked_up_and_keeps_its_fingerprint():
    report = ill()
    places = {place_key(report.findings[0]): ("scalars.jsonl", 480)}
    run = run_of(report, View(base="runs/nano", places=places))
    first, second = (result["locations"][0]["physicalLocation"] for result in run["results"][:2])
    assert first == {"artifactLocation": {"uri": "runs/nano/scalars.jsonl"}, "region": {"startLine": 480}}
    assert second["artifactLocation"]["uri"] == "runs/nano/"
    assert [result["partialFingerprints"] for result in run["results"]] == [
        result["partialFingerprints"] for result in run_of(report)["results"]
    ]


def test_tensors_are_logical_locations():
    assert run_of(ill())["results"][1]["locations"][0]["logicalLocations"] == [
        {"fullyQualifiedName": "blocks.3.attention.query.weight"}
    ]


def prints(report):
    return [result["partialFingerprints"]["ckaudit/v1"] for result in run_of(report)["results"]]


def test_fingerprints_survive_new_lines_numbers_and_words_but_not_a_new_place():
    report = invalid()
    moved = [msgspec.structs.replace(finding, line=99, message="otherwise", found="else") for finding in report.findings]
    elsewhere = [msgspec.structs.replace(finding, pointer="/other") for finding in report.findings]
    assert prints(msgspec.structs.replace(report, findings=moved)) == prints(report)
    assert not set(prints(msgspec.structs.replace(report, findings=elsewhere))) & set(prints(report))


def test_equal_findings_have_different_fingerprints():
    report = invalid()
    twice = msgspec.structs.replace(report, findings=report.findings[:1] * 3)
    assert len(set(prints(twice))) == 3


def test_a_name_cannot_become_a_link():
    report = ill()
    finding = msgspec.structs.replace(report.findings[2], message="see [here](https://evil.example)")
    assert "](" not in run_of(msgspec.structs.replace(report, findings=[finding]))["results"][0]["message"]["text"]


def test_the_likeliest_cause_stands_in_the_message():
    texts = {result["ruleId"]: result["message"]["text"] for result in run_of(ill())["results"]}
    assert "Likely, 0.87: The learning rate is too high for this stage. First: Halve" in texts["GRAD002"]
    assert "First:" not in texts["ATT003"]


def test_a_broken_check_makes_the_run_unsuccessful():
    broken = Check(code="X001", name="x", title="x", severity="sev2", outcome="error", detail="KeyError: 'loss'")
    invocation = run_of(msgspec.structs.replace(ill(), checks=[broken]))["invocations"][0]
    assert invocation["executionSuccessful"] is False
    assert "X001 broke: KeyError" in invocation["toolExecutionNotifications"][0]["message"]["text"]


def test_accepted_findings_are_suppressed_results_and_the_rest_is_new():
    run = run_of(gated())
    states = {each["ruleId"]: (each.get("baselineState"), len(each.get("suppressions", ()))) for each in run["results"]}
    assert states == {"LOSS002": ("new", 0), "GRAD002": ("unchanged", 1), "ATT003": (None, 1)}
    told = [each["message"]["text"] for each in run["invocations"][0]["toolConfigurationNotifications"]]
    assert any(text.startswith("1 entry of known.json matches nothing any more") for text in told)


def test_without_a_baseline_no_result_has_a_state():
    assert not any({"baselineState", "suppressions"} & each.keys() for each in run_of(ill())["results"])


def test_a_start_that_moves_a_little_keeps_the_fingerprint():
    report = ill()
    later = [msgspec.structs.replace(each, first_step=each.first_step + 9, last_step=900) for each in report.findings]
    assert prints(msgspec.structs.replace(report, findings=later)) == prints(report)
