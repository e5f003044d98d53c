"""What a policy changes in the verdict on recorded runs."""

import shutil

import pytest

from tests.policy.conftest import RUNS


def codes(report):
    return {each["code"] for each in report["findings"]}


def outcome(report, code):
    return next((each["outcome"], each.get("reason")) for each in report["checks"] if each["code"] == code)


def test_without_a_policy_the_report_says_none(told):
    code, report, _ = told("lr_too_high")
    assert code == 1
    assert (report["policy"], report["baseline"], report["suppressed"], report["stale"]) == (None, None, [], [])


def test_rules_that_are_not_selected_are_skipped_as_disabled(told):
    _, report, _ = told("lr_too_high", policy='select = ["GRAD*", "loss_spike"]')
    assert all(code.startswith("GRAD") or code == "LOSS001" for code in codes(report))
    assert "LOSS001" in codes(report)
    assert outcome(report, "ATTN001") == ("skipped", "disabled")
    assert outcome(report, "GRAD006") == ("passed", None)


def test_a_rule_that_is_off_is_disabled_and_leaves_the_others(told):
    _, plain, _ = told("lr_too_high")
    _, report, _ = told("lr_too_high", policy='[severities]\nloss_spike = "off"')
    assert codes(report) == codes(plain) - {"LOSS001"}
    assert outcome(report, "LOSS001") == ("skipped", "disabled")


def test_a_threshold_decides_what_is_found(told):
    assert "LOSS001" in codes(told("no_warmup_spike")[1])
    assert "LOSS001" not in codes(told("no_warmup_spike", policy="[thresholds.loss_spike]\nk = 1e9")[1])
    assert "LOSS001" not in codes(told("no_warmup_spike", policy="[thresholds.LOSS001]\nk = 1000000000")[1])


def test_a_severity_moves_the_gravest_findings_and_the_exit_code(told):
    code, report, _ = told("zeroed_projection")
    assert (code, report["severity"]) == (0, "sev2")
    code, report, _ = told("zeroed_projection", policy='[severities]\nGRAD003 = "sev1"')
    assert (code, report["severity"]) == (1, "sev1")
    code, report, _ = told("zeroed_projection", policy='select = ["GRAD003"]\n[severities]\nGRAD003 = "note"')
    assert (code, report["severity"], report["diagnoses"]) == (0, "note", [])
    assert outcome(report, "GRAD003") == ("passed", None)


@pytest.mark.parametrize(("options", "code"), [([], 1), (["--fail-on", "sev1"], 0), (["--no-config"], 0)])
def test_fail_on_is_the_policys_unless_the_command_line_says_it(told, options, code):
    assert told("zeroed_projection", *options, policy='fail_on = "sev2"')[0] == code


def test_an_ignored_finding_is_kept_aside_with_its_reason_and_fails_nothing(told):
    accepted = '[[ignore]]\ncode = "dead_parameter"\nwhere = "blocks.1.*"\nreason = "frozen on purpose"\nuntil = 2999-12-31\n'
    policy = f'select = ["GRAD003"]\n{accepted}'
    code, report, _ = told("zeroed_projection", "--fail-on", "sev2", policy=policy)
    assert code == 0
    assert report["verdict"].startswith("Nothing new up to step 500")
    (hidden,) = [each for each in report["suppressed"] if each["finding"]["severity"] == "sev2"]
    assert (hidden["by"], hidden["reason"], hidden["until"]) == ("policy", "frozen on purpose", "2999-12-31")
    check = next(each for each in report["checks"] if each["code"] == "GRAD003")
    assert (check["outcome"], check["suppressed"]) == ("passed", len(report["suppressed"]))
    assert report["diagnoses"] == []


def test_an_ignore_must_cover_every_place_of_a_finding(told):
    policy = '[[ignore]]\ncode = "GRAD003"\nwhere = "blocks.1.attn_norm.*"\nreason = "x"\n'
    assert told("zeroed_projection", "--fail-on", "sev2", policy=policy)[0] == 1


def test_an_ignore_that_has_ended_hides_nothing_and_is_told(told):
    policy = '[[ignore]]\ncode = "GRAD003"\nreason = "until the fix"\nuntil = 2020-01-31\n'
    code, report, _ = told("zeroed_projection", "--fail-on", "sev2", policy=policy)
    assert code == 1
    assert report["suppressed"] == []
    assert report["notes"] == [
        "ckaudit.toml: the ignore of GRAD003 ended on 2020-01-31 and hides nothing any more; it was for: until the fix"
    ]


def test_an_ignored_finding_is_still_evidence(told):
    """The entropy collapse supports the cause of the spikes; ignored, it is not explained itself."""
    policy = '[[ignore]]\ncode = "ATTN001"\nreason = "known"\n'
    _, plain, _ = told("lr_too_high")
    _, report, _ = told("lr_too_high", policy=policy)
    first = report["diagnoses"][0]
    assert first["cause"] == plain["diagnoses"][0]["cause"]
    assert first["confidence"] == plain["diagnoses"][0]["confidence"]
    assert "ATTN001" not in first["explains"]
    assert "ATTN001" in {each.get("reference") for each in first["evidence"]}
    assert not [each for each in report["diagnoses"] if "ATTN001" in each["explains"]]


@pytest.mark.parametrize(
    ("policy", "profiles", "k"),
    [
        ("[profile.nano.thresholds.loss_spike]\nk = 7", ["nano"], 7),
        ("[profile.large.thresholds.loss_spike]\nk = 7", [], None),
        ('scale = "large"\n[profile.large.thresholds.loss_spike]\nk = 7', ["large"], 7),
        ("[profile.late.thresholds.loss_spike]\nk = 7\n[profile.nano.thresholds.loss_spike]\nk = 9", ["nano", "late"], 7),
        ("[thresholds.LOSS001]\nk = 5\n[profile.late.thresholds.loss_spike]\nk = 6", ["late"], 6),
        ("thresholds.loss_spike.k = 5\nprofile.late.thresholds.loss_spike.jump = 2", ["late"], 5),
    ],
)
def test_profiles_apply_by_the_scale_and_stage_of_the_run(told, policy, profiles, k):
    _, report, _ = told("healthy", policy=policy)
    assert report["policy"]["scale"] == ("large" if "scale" in policy else "nano")
    assert report["policy"]["stage"] == "late"
    assert report["policy"].get("profiles", []) == profiles
    assert (f"loss_spike.k = {k}" in report["policy"].get("changes", [])) is (k is not None)


def test_the_stage_is_that_of_the_step_judged_at(told):
    policy = '[profile.early]\nfail_on = "note"\n[profile.late]\nfail_on = "sev0"'
    assert told("healthy", policy=policy)[1]["policy"]["fail_on"] == "sev0"
    assert told("healthy", "--step", "50", policy=policy)[1]["policy"]["fail_on"] == "note"


def test_a_watched_slice_that_is_not_recorded_is_told(told):
    _, report, _ = told("healthy", policy='slices = ["regular", "poetry"]')
    assert "the policy watches poetry, of which no slice_val_loss is recorded" in report["notes"]


def test_a_watched_slice_may_not_get_worse_even_where_all_do(told):
    assert "SLIC001" not in codes(told("overfit_tiny")[1])
    code, report, _ = told("overfit_tiny", policy='slices = ["irregular"]')
    (found,) = [each for each in report["findings"] if each["code"] == "SLIC001"]
    assert (found["severity"], found["where"], code) == ("sev1", "slice_val_loss/irregular", 1)


def test_the_nearest_file_holds_and_the_top_of_a_repository_ends_the_search(told, tmp_path, monkeypatch):
    (tmp_path / "ckaudit.toml").write_text('fail_on = "sev2"')
    inner = tmp_path / "repository" / "jobs" / "canary"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert told("healthy")[1]["policy"]["file"] == "../../../ckaudit.toml"
    (tmp_path / "repository" / ".git").mkdir()
    assert told("healthy")[1]["policy"] is None
    (tmp_path / "repository" / "pyproject.toml").write_text('[tool.ckaudit]\nfail_on = "note"')
    assert told("healthy")[1]["policy"]["file"] == "../../pyproject.toml"
    (tmp_path / "repository" / "ckaudit.toml").write_text('fail_on = "sev0"')
    assert told("healthy")[1]["policy"]["fail_on"] == "sev0"


@pytest.mark.parametrize(
    "text",
    [
        '[tool.ckaudit]\nfail_on = "note"',
        '[ tool . "ckaudit" ]\nfail_on = "note"',
        '[tool]\nckaudit = { fail_on = "note" }',
        '[tool]\nckaudit.fail_on = "note"',
        'tool.ckaudit.fail_on = "note"',
        "[[tool.'ckaudit'.ignore]]\ncode = 'GRAD001'\nreason = 'x'",
    ],
)
def test_a_table_is_found_however_it_is_written(told, text):
    assert told("healthy", policy=text, file="pyproject.toml")[1]["policy"]["file"] == "pyproject.toml"


def test_a_pyproject_of_other_tools_is_no_policy(told):
    assert told("healthy", policy="[tool.other]\nfor = 'ckaudit'", file="pyproject.toml")[1]["policy"] is None


def test_a_run_does_not_bring_its_judge_along(told, tmp_path):
    shutil.copytree(RUNS / "zeroed_projection", tmp_path / "run")
    (tmp_path / "run" / "ckaudit.toml").write_text("select = []")
    code, report, _ = told(tmp_path / "run", "--fail-on", "sev2")
    assert (code, report["policy"]) == (1, None)


def test_validate_grades_and_ignores_too(told, tmp_path):
    (tmp_path / "run").mkdir()
    file = tmp_path / "run" / "analysis_checkpoint_step_00000100.json"
    file.write_text('{"schema_version": "ck.analysis.v1", "step": 100, "mood": "fine", "loss": "much"}')
    code, report, _ = told(tmp_path / "run", command="validate")
    assert (code, codes(report)) == (1, {"SCH006", "SCH008"})
    policy = '[severities]\nSCH006 = "note"\n[[ignore]]\ncode = "unknown_field"\nwhere = "*_00000100.json"\nreason = "ours"\n'
    code, report, _ = told(tmp_path / "run", command="validate", policy=policy)
    assert (code, codes(report), report["severity"]) == (0, {"SCH006"}, "note")
    assert [each["finding"]["code"] for each in report["suppressed"]] == ["SCH008"]
    assert outcome(report, "SCH008") == ("passed", None)
    assert outcome(report, "SCH006") == ("failed", None)
    code, report, _ = told(tmp_path / "run", command="validate", policy='[severities]\nSCH006 = "off"\nSCH008 = "off"\n')
    assert (code, report["findings"], outcome(report, "SCH006")) == (0, [], ("skipped", "disabled"))
