"""Everything that can be wrong with a policy: one line with file, key and what was expected, one with what helps."""

import pytest

from ckaudit.cli.run import run
from tests.policy.conftest import RUNS

IGNORE = '[[ignore]]\ncode = "GRAD001"\n'


@pytest.mark.parametrize(
    ("policy", "message", "hint"),
    [
        ('selct = ["GRAD*"]', "unknown key selct", "did you mean select?"),
        ('fail-on = "sev2"', "unknown key fail-on", "did you mean fail_on?"),
        ('select = "GRAD001"', "select: expected a list of codes, names or patterns of rules, got 'GRAD001'", ""),
        ('select = ["overfiting"]', "select: no rule is called 'overfiting'", "did you mean overfitting?"),
        ('select = ["SYN001"]', "select: no rule is called 'SYN001'", ""),
        ('fail_on = "sev5"', "fail_on: expected sev0, sev1, sev2 or note, got 'sev5'", ""),
        ('scale = "tiny"', "scale: expected nano, medium or large, got 'tiny'", ""),
        ('stage = "warm"', "stage: expected early, steady or late, got 'warm'", ""),
        ('[profile.lat]\nfail_on = "note"', "unknown key profile.lat", "did you mean late?"),
        ('[profile.late]\nscale = "nano"', "unknown key profile.late.scale", "known are fail_on, ignore"),
        ("[profile.late.thresholds.loss_spike]\nq = 1", "profile.late.thresholds.loss_spike.q: loss_spike has no such", "k"),
        ("profile = 3", "profile is not a table", "its keys are nano"),
        (IGNORE, "ignore[0] has no reason", "add reason = "),
        (IGNORE + 'reason = " "', "ignore[0] has no reason", "add reason = "),
        (IGNORE + 'reson = "x"', "unknown key ignore[0].reson", "did you mean reason?"),
        ('[[ignore]]\nreason = "x"', "ignore[0] has no code", "add code = "),
        (IGNORE + 'reason = "x"\nuntil = "soon"', "ignore[0].until: expected a date, such as 2027-01-31, got 'soon'", ""),
        (IGNORE + 'reason = "x"\nuntil = 2027-01-31T10:00:00', "ignore[0].until: expected a date", ""),
        ('[[ignore]]\ncode = "GRD001"\nreason = "x"', "ignore: no rule or violation is called 'GRD001'", "GRAD001"),
        ('ignore = ["GRAD001"]', "ignore[0] is not a table", "its keys are code, reason, where, until"),
        ("[ignore]\ncode = 1", "ignore: expected tables, each under [[ignore]]", ""),
        ("[thresholds.loss_spikes]\nk = 1", "thresholds: no rule is called 'loss_spikes'", "did you mean loss_spike?"),
        ("[thresholds.loss_spike]\nwindows = 1", "thresholds.loss_spike.windows: loss_spike has no such threshold", "window?"),
        ('[thresholds.loss_spike]\nk = "a"', "thresholds.loss_spike.k: expected a number, got 'a'", "its default is 6.0"),
        ("[thresholds.loss_spike]\nk = true", "thresholds.loss_spike.k: expected a number, got True", ""),
        ("[thresholds.loss_spike]\nk = nan", "thresholds.loss_spike.k: expected a number, got nan", ""),
        ("[thresholds.LOSS001]\nwindow = 1.5", "thresholds.LOSS001.window: expected a whole number, got 1.5", "default is 50"),
        ("[thresholds]\nloss_spike = 3", "thresholds.loss_spike: expected a table of thresholds, got 3", ""),
        ('[severities]\nLOSS001 = "sev9"', "severities.LOSS001: expected sev0, sev1, sev2, note or off, got 'sev9'", ""),
        ('[severities]\n"LOSS*" = "sev1"', "severities: no rule or violation is called 'LOSS*'", ""),
        (
            '[severities]\nLOSS001 = "sev1"\nloss_spike = "sev2"',
            "severities: LOSS001 is set twice, by code and by name",
            "one of",
        ),
        ("[thresholds.LOSS001]\nk = 5\n[thresholds.loss_spike]\nk = 6", "thresholds: loss_spike is set twice", "leave one"),
        ("slices = [1]", "slices: expected a list of names of slices, got [1]", ""),
        ("a = \n", "ckaudit.toml is not TOML: Invalid value (at line 1, column 5)", "toml.io"),
    ],
)
@pytest.mark.parametrize("command", ["triage", "validate"])
def test_a_wrong_policy_is_refused_before_any_work(told, policy, message, hint, command):
    code, report, err = told(RUNS / "nowhere", policy=policy, command=command)
    assert (code, report) == (2, None)
    assert err.startswith("error: ckaudit.toml")
    assert message in err
    assert hint in err


def test_in_a_pyproject_the_key_is_named_whole(told):
    code, _, err = told("healthy", policy="[tool.ckaudit]\nselct = []", file="pyproject.toml")
    assert (code, err) == (2, "error: pyproject.toml: unknown key tool.ckaudit.selct\nhint: did you mean select?\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--config", "nowhere.toml"], "--config: there is no file nowhere.toml"),
        (["--config", "a.toml", "--no-config"], "--config and --no-config contradict each other"),
        (["--update-baseline"], "--update-baseline without --baseline"),
        (["--baseline", "nowhere.json"], "--baseline: there is no file nowhere.json\nhint: --update-baseline writes it"),
        (["--baseline", "torn.json"], "--baseline: torn.json is no baseline"),
        (["--baseline", "other.json"], "--baseline: other.json is no baseline"),
    ],
)
def test_options_that_make_no_sense_are_refused(told, tmp_path, options, message):
    (tmp_path / "torn.json").write_text('{"schema_version": "ck.base')
    (tmp_path / "other.json").write_text('{"schema_version": "ck.baseline.v2", "accepted": []}')
    code, report, err = told("healthy", *options)
    assert (code, report) == (2, None)
    assert message in err
    assert "hint: " in err


def test_a_pyproject_without_our_table_is_refused_where_it_is_named(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.other]\nx = 1\n")
    assert run(["triage", str(RUNS / "healthy"), "--config", "pyproject.toml"]) == 2
    assert "pyproject.toml has no table [tool.ckaudit]" in capfd.readouterr().err
