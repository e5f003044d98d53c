"""What a pipeline reads beside the exit code says the same: JUnit fails where the command does, SARIF points at real files."""

import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.in_process import ckaudit
from tests.junit_schema import junit_schema

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "fixtures" / "runs"
HEALTHY = str(RUNS / "healthy")
ALLOWED = '[gate]\nquestions = ["loss"]\n\n[gate.allow]\nloss = "1000%"\n'
INCOMPARABLE = '[gate]\nincomparable = "{}"\n'


def junit(*arguments, cwd):
    """Return the exit code and the JUnit of a command, which keeps its schema."""
    done = ckaudit(*arguments, "--format", "junit", cwd=cwd)
    junit_schema().validate(done.stdout)
    return done.returncode, ET.fromstring(done.stdout)


@pytest.mark.parametrize(
    ("canary", "policy", "code"),
    [
        ("healthy", "", 0),
        ("float16_overflow", "", 0),  # slower, which this gate does not ask
        ("zeroed_projection", "", 0),  # findings that do not count
        ("lr_too_high", "", 1),
        ("lr_too_high", ALLOWED, 0),
        ("experts_two_ranks", "", 2),
        ("experts_two_ranks", INCOMPARABLE.format("fail"), 1),
        ("experts_two_ranks", INCOMPARABLE.format("pass"), 0),
    ],
)
def test_junit_has_a_failure_exactly_where_the_gate_does_not_pass(canary, policy, code, tmp_path):
    (tmp_path / "ckaudit.toml").write_text(policy)
    told, root = junit("gate", RUNS / canary, "--against", HEALTHY, "--config", "ckaudit.toml", cwd=tmp_path)
    assert told == code
    assert (root.get("failures") == "0") == (code == 0)
    (verdict,) = [case for case in root.iter("testcase") if case.get("classname") == "DIFF022"]
    assert (verdict.find("failure") is None) == (code == 0)


@pytest.mark.parametrize("least", ["sev0", "sev1", "sev2", "note"])
@pytest.mark.parametrize("run", ["healthy", "lr_too_high", "zeroed_projection", "no_warmup_spike"])
def test_junit_of_triage_fails_where_its_exit_code_does(run, least, tmp_path):
    told, root = junit("triage", RUNS / run, "--no-config", "--fail-on", least, cwd=tmp_path)
    assert told == (root.get("failures") != "0")


def places(*arguments, cwd):
    """Return for each result of a SARIF run the file that it points at, its line, and its first step."""
    (run,) = json.loads(ckaudit(*arguments, "--format", "sarif", cwd=cwd).stdout)["runs"]
    bases = {name: base["uri"] for name, base in run.get("originalUriBaseIds", {}).items()}
    for result in run["results"]:
        place = result["locations"][0]["physicalLocation"]
        address = urlsplit(bases.get(place["artifactLocation"].get("uriBaseId"), "") + place["artifactLocation"]["uri"])
        yield cwd / unquote(address.path), place["region"]["startLine"], result["properties"]["first_step"]


@pytest.mark.parametrize("run", ["lr_too_high", "zeroed_projection", "no_warmup_spike"])
def test_every_finding_of_a_run_points_at_the_file_and_line_of_its_first_step(run, tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    outside.mkdir()
    shutil.copytree(RUNS / run, inside / "runs" / "a")
    for folder, named in ((inside, "runs/a"), (outside, "../inside/runs/a")):
        found = [*places("triage", named, "--no-config", cwd=folder)]
        assert {file.resolve().parent for file, _, _ in found} == {inside / "runs" / "a"}
        for file, line, step in found:
            if file.name == "scalars.jsonl":
                assert json.loads(file.read_text().splitlines()[line - 1])["step"] == step
            else:
                assert (file.is_file(), line) == (True, 1)
                assert file.name.startswith(f"analysis_checkpoint_step_{step:08d}.")


def test_findings_of_a_log_point_at_the_log(tmp_path):
    (tmp_path / "log.csv").write_text("step,loss\n" + "".join(f"{step},{3.0 if step < 40 else 'nan'}\n" for step in range(60)))
    assert {(file, line) for file, line, _ in places("triage", "log.csv", cwd=tmp_path)} == {(tmp_path / "log.csv", 1)}


def test_a_gate_points_at_the_canary(tmp_path):
    (tmp_path / "canary").symlink_to(RUNS / "lr_too_high")
    found = [*places("gate", "canary", "--against", HEALTHY, cwd=tmp_path)]
    assert {file for file, _, _ in found} == {tmp_path / "canary" / "scalars.jsonl"}
