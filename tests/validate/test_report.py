"""The report of a validation: verdict, order, checks and notes."""

import msgspec

from ckaudit.contract.schema.report import Report
from ckaudit.contract.violations import KINDS
from ckaudit.material.files import NOT_JSON
from ckaudit.validate import validate
from tests.validate.material import checkpoint, healthy_run, line, name_of, write, write_lines


def test_the_verdict_counts_files_and_severities(tmp_path):
    run = healthy_run(tmp_path / "run")
    write(run / name_of(0), checkpoint(0, oddity=1))
    write(run / name_of(10), checkpoint(10, triggers="x"))
    (run / name_of(20)).write_text("{")
    report = validate([run])
    assert report.verdict == "3 of 8 files break the contract: 2 sev1, 1 sev2"
    assert (report.command, report.severity, report.files) == ("validate", "sev1", 8)


def test_a_note_breaks_nothing(tmp_path):
    run = healthy_run(tmp_path / "run")
    write(run / "run.json", {"schema_version": "ck.run.v1", "cadence": [{"until": None, "every": 10}], "sessions": [{}]})
    report = validate([run])
    assert [finding.severity for finding in report.findings] == ["note"]
    assert report.verdict.startswith("8 files follow")


def test_findings_stand_gravest_first_then_by_file_and_line(tmp_path):
    run = healthy_run(tmp_path / "run")
    write(run / name_of(0), checkpoint(0, oddity=1))
    write(run / name_of(50), checkpoint(50, triggers="x"))
    write_lines(run / "scalars.jsonl", [line(1), {"x": 1}, line(2), {"x": 1}])
    places = [(finding.severity, finding.file, finding.line) for finding in validate([run]).findings]
    assert places == [
        ("sev1", name_of(50), 1),
        ("sev1", "scalars.jsonl", 2),
        ("sev1", "scalars.jsonl", 4),
        ("sev2", name_of(0), None),
    ]


def test_every_kind_of_violation_has_one_check(tmp_path):
    report = validate([healthy_run(tmp_path / "run")])
    assert NOT_JSON.code in KINDS, "faults of samples stand in the same catalogue"
    assert [check.code for check in report.checks] == sorted(
        code for code in KINDS if not code.startswith(("DAT", "DIFF", "PLUG", "RSM", "SIB", "WATCH"))
    )
    assert all((check.reason is None) == (check.outcome != "skipped") for check in report.checks)


def test_what_was_not_recorded_was_not_judged(tmp_path):
    write(tmp_path / name_of(0), {"schema_version": "ck.analysis.v1", "step": 0})
    outcomes = {check.name: (check.outcome, check.reason) for check in validate([tmp_path]).checks}
    assert outcomes["not_json"] == ("passed", None)
    assert outcomes["duplicate_step"] == ("skipped", "too_few_points")
    assert outcomes["conflicting_values"] == ("skipped", "not_recorded")
    assert outcomes["rank_without_merged_file"] == ("skipped", "not_applicable")
    assert outcomes["percentiles_descend"] == ("skipped", "not_recorded")


def test_a_violation_fails_its_check_and_no_other(tmp_path):
    run = healthy_run(tmp_path / "run")
    write(run / "extra.json", {})
    write(run / name_of(30), checkpoint(30, time=1.0))
    failed = {check.name: check.findings for check in validate([run]).checks if check.outcome == "failed"}
    assert failed == {"clock_goes_back": 1}


def test_the_same_run_gives_the_same_report_to_the_byte(tmp_path):
    run = healthy_run(tmp_path / "run")
    for step in (10, 20, 30):
        write(run / name_of(step), checkpoint(step, oddity=1, loss=step / 7, time=9.0 - step))
    assert msgspec.json.encode(validate([run])) == msgspec.json.encode(validate([run]))


def test_any_report_is_a_document_of_its_own_contract(tmp_path):
    (tmp_path / name_of(0)).write_text('{"schema_version": "ck.analysis.v1", "step": 0, "weights": {"\\ud800": {"min": "x"}}}')
    report = validate([tmp_path])
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report


def test_several_folders_are_several_runs(tmp_path):
    one, other = healthy_run(tmp_path / "one"), healthy_run(tmp_path / "other")
    (other / name_of(20)).unlink()
    report = validate([one, other])
    assert [finding.file for finding in report.findings] == [f"{other}/{name_of(30)}"]
    assert report.files == 15
    assert report.subject == f"{one}, {other}"


def test_progress_is_told_after_each_file(tmp_path):
    told = []
    validate([healthy_run(tmp_path / "run")], progress=lambda done, total: told.append((done, total)))
    assert told == [(done, 8) for done in range(1, 9)]


def test_files_of_other_names_are_named_from_the_folder_as_those_of_a_run(tmp_path):
    (tmp_path / "any.json").write_text('{"schema_version": "ck.analysis.v1"}')
    other = tmp_path / "other"
    other.mkdir()
    (other / "some.json").write_text('{"schema_version": "ck.analysis.v1"}')
    assert [finding.file for finding in validate([tmp_path]).findings] == ["any.json"]
    assert {finding.file for finding in validate([tmp_path, other]).findings} == {f"{tmp_path}/any.json", f"{other}/some.json"}
