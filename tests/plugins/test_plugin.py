"""The example package, really installed, through the command line; and packages that do not load."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked import ckaudit

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "fixtures" / "runs"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder into which pip has installed the example, without a network."""
    source, target = tmp_path_factory.mktemp("source") / "plugin", tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "examples" / "plugin", source)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    done = subprocess.run([*command, "--target", str(target), str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture
def broken(tmp_path):
    """A folder with a package whose module cannot be imported."""
    return declare(tmp_path / "site", "ckaudit-broken", "rules", "broken_rules", "import a_library_that_is_not_there\n")


def declare(site, package, group, module, code):
    """Write a module, and what pip would have written about its package."""
    information = site / f"{package.replace('-', '_')}-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[ckaudit.{group}]\nx = {module}\n")
    (site / f"{module}.py").write_text(code)
    return site


def triage(run, *sites, options=(), cwd=None):
    done = ckaudit("triage", RUNS / run, "-f", "json", *options, sites=sites, cwd=cwd)
    return done, json.loads(done.stdout)


def test_its_rule_finds_its_metric_computes_and_its_cause_explains(installed):
    _, report = triage("lr_too_high", installed)
    found = [each for each in report["findings"] if each["code"] == "GUES001"]
    assert found
    assert found[0]["name"] == "worse_than_guessing"
    assert found[0]["value"] > 1.5
    explained = next(each for each in report["diagnoses"] if each["cause"] == "thrown_back")
    assert explained["explains"] == ["GUES001"]
    assert "before, the loss was 0." in explained["evidence"][0]["sentence"]
    assert next(each for each in report["checks"] if each["code"] == "GUES001")["outcome"] == "failed"


def test_a_healthy_run_passes_its_rule(installed):
    done, report = triage("healthy", installed)
    assert done.returncode == 0
    assert next(each for each in report["checks"] if each["code"] == "GUES001")["outcome"] == "passed"


def test_its_metric_is_the_loss_over_the_logarithm_of_the_vocabulary(installed):
    told = ckaudit("metrics", RUNS / "healthy", "loss_over_guessing", "train_loss_raw", "-f", "json", sites=[installed])
    values = {each["name"]: each["values"] for each in json.loads(told.stdout)["metrics"]}
    assert values["loss_over_guessing"][0][0] == pytest.approx(values["train_loss_raw"][0][0] / 3.3322045101752, rel=1e-6)


@pytest.mark.parametrize("name", ["loss_over_guessing", "GUES001", "thrown_back"])
def test_what_it_adds_can_be_explained(installed, name):
    told = ckaudit("explain", name, sites=[installed])
    assert (told.returncode, told.stderr) == (0, "")
    assert "guessing" in told.stdout


def test_a_policy_tunes_its_rule(installed, tmp_path):
    (tmp_path / "ckaudit.toml").write_text("[thresholds.worse_than_guessing]\nlimit = 1000.0\n")
    _, report = triage("lr_too_high", installed, cwd=tmp_path)
    assert not [each for each in report["findings"] if each["code"] == "GUES001"]


def test_one_that_does_not_load_is_named_and_the_others_still_judge(installed, broken):
    done, report = triage("healthy", installed, broken)
    assert done.returncode == 2
    assert "PLUG001 broke" in done.stderr
    (check,) = [each for each in report["checks"] if each["outcome"] == "error"]
    assert check["detail"] == (
        "rules of ckaudit-broken 1.0 (broken_rules) did not load: "
        "ModuleNotFoundError: No module named 'a_library_that_is_not_there'"
    )
    assert {each["code"] for each in report["checks"] if each["outcome"] == "passed"} >= {"GUES001", "LOSS001"}


def test_one_that_does_not_load_hides_no_finding(broken):
    done, report = triage("lr_too_high", broken)
    assert done.returncode == 1
    assert report["severity"] == "sev1"


def test_a_rule_that_takes_a_code_of_ours_does_not_load(tmp_path):
    code = "from ckaudit.rules.rule import rule\n@rule('LOSS001', severity='sev0', needs=[])\ndef mine(): 'x'\n"
    done, report = triage("healthy", declare(tmp_path / "site", "ckaudit-thief", "rules", "thief", code))
    assert done.returncode == 2
    assert "stands twice in the catalogue" in next(each for each in report["checks"] if each["outcome"] == "error")["detail"]


def test_a_metric_that_takes_a_name_of_ours_does_not_load(tmp_path):
    code = "from ckaudit.metrics.metric import metric\n@metric(unit='1', reads=['x'], source='x')\ndef val_loss(run): 'x'\n"
    site = declare(tmp_path / "site", "ckaudit-thief", "metrics", "thief", code)
    done = ckaudit("metrics", RUNS / "healthy", "val_loss", sites=[site])
    assert done.returncode == 0
    assert "metrics of ckaudit-thief 1.0 (thief) did not load: ValueError: metric val_loss stands twice" in done.stdout
    assert ckaudit("metrics", RUNS / "healthy", "val_loss").stdout.splitlines()[0] in done.stdout


def test_help_and_version_import_no_plugin(tmp_path):
    site = declare(tmp_path / "site", "ckaudit-loud", "rules", "loud", "print('loaded')\n")
    for arguments in (["--help"], ["triage", "--help"], ["validate", RUNS / "healthy"]):
        assert "loaded" not in ckaudit(*arguments, sites=[site]).stdout
    assert "loaded" in ckaudit("triage", RUNS / "healthy", sites=[site]).stdout
