"""The two gates that call validate from outside: the pre-commit hook and the GitHub action, as their files are written."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.validate.material import checkpoint, healthy_run, name_of, write

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
(HOOK,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())


def fill(text: str, values: dict[str, str]) -> str:
    """Put values in the place of ${{ expressions }}; an unknown one is an error."""
    return re.sub(r"\$\{\{\s*([\w.-]+)\s*\}\}", lambda match: values[match[1]], str(text))


def run_action(tmp_path: Path, *, install: bool = False, **inputs: str) -> list[tuple[str, subprocess.CompletedProcess[str]]]:
    """Execute the shell steps of action.yml in order, until one fails, as a runner does."""
    given = {name: str(each.get("default", "")) for name, each in ACTION["inputs"].items()} | inputs
    values = {f"inputs.{name}": value for name, value in given.items()}
    values |= {"github.action_path": str(ROOT), "runner.temp": str(tmp_path)}
    done = []
    for step in ACTION["runs"]["steps"]:
        if "run" not in step or (step["name"] == "Install" and not install):
            continue
        environment = os.environ | {name: fill(value, values) for name, value in step["env"].items()}
        environment["GITHUB_OUTPUT"] = str(tmp_path / "output")
        environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment["PYTHONPATH"] = "" if install else str(ROOT)
        script = tmp_path / "step.sh"
        script.write_text(fill(step["run"], values))
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", script]
        done.append((step["name"], subprocess.run(command, env=environment, capture_output=True, text=True, check=False)))
        if done[-1][1].returncode:
            break
    return done


@pytest.fixture
def broken(tmp_path):
    run = healthy_run(tmp_path / "broken")
    write(run / name_of(30), checkpoint(30, triggers="lots"))
    return run


@pytest.fixture
def flawed(tmp_path):
    run = healthy_run(tmp_path / "flawed")
    write(run / name_of(30), checkpoint(30, oddity=1))
    return run


def test_the_action_passes_a_healthy_run_and_leaves_an_empty_sarif_file(tmp_path):
    steps = run_action(tmp_path, path=str(healthy_run(tmp_path / "run")))
    assert [(name, done.returncode) for name, done in steps] == [("Write SARIF", 0), ("Validate", 0)]
    assert (tmp_path / "output").read_text() == f"file={tmp_path}/ckaudit.sarif\n"
    sarif = json.loads((tmp_path / "ckaudit.sarif").read_text())
    assert [run["results"] for run in sarif["runs"]] == [[]]


def test_the_action_fails_a_broken_run_marks_the_place_and_leaves_the_sarif_file(tmp_path, broken):
    steps = run_action(tmp_path, path=f"\n{healthy_run(tmp_path / 'run')}\n{broken}\n")
    assert [(name, done.returncode) for name, done in steps] == [("Write SARIF", 0), ("Validate", 1)]
    assert steps[1][1].stdout.startswith("::error ")
    assert name_of(30) in steps[1][1].stdout
    sarif = json.loads((tmp_path / "ckaudit.sarif").read_text())
    assert [result["ruleId"] for result in sarif["runs"][0]["results"]] == ["SCH004"]


@pytest.mark.parametrize(
    ("inputs", "code"), [({}, 0), ({"strict": "true"}, 1), ({"fail-on": "sev2"}, 1), ({"format": "markdown"}, 0)]
)
def test_the_inputs_of_the_action_reach_the_command(tmp_path, flawed, inputs, code):
    steps = run_action(tmp_path, path=str(flawed), **inputs)
    assert steps[-1][0] == "Validate"
    assert steps[-1][1].returncode == code


def test_what_a_baseline_accepts_fails_no_job_and_opens_no_alert(tmp_path, broken):
    known = str(tmp_path / "known.json")
    command = [sys.executable, "-m", "ckaudit", "validate", str(broken), "--baseline", known, "--update-baseline"]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    steps = run_action(tmp_path, path=str(broken), baseline=known)
    assert [(name, done.returncode) for name, done in steps] == [("Write SARIF", 0), ("Validate", 0)]
    assert "1 finding does not count" in steps[1][1].stdout
    sarif = json.loads((tmp_path / "ckaudit.sarif").read_text())
    assert [run["results"] for run in sarif["runs"]] == [[]]


def test_the_action_fails_where_there_is_nothing_to_validate(tmp_path):
    assert run_action(tmp_path, path=str(tmp_path / "nowhere"))[-1][1].returncode == 2


def test_a_path_is_never_code(tmp_path):
    run_action(tmp_path, path=f"$(touch {tmp_path}/owned); --help")
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("path", "chosen"),
    [
        ("analysis_checkpoint_step_00000500.json", True),
        ("runs/a/analysis_checkpoint_step_00000500.session001.json.zst", True),
        ("runs/a/run.json", True),
        ("runs/a/scalars.jsonl", True),
        ("runs/a/scalars_eval.jsonl.gz", True),
        ("runs/a/prerun.json", False),
        ("runs/a/analysis_checkpoint_step_00000500.json.tmp", False),
        ("package.json", False),
    ],
)
def test_the_hook_chooses_the_files_of_runs(path, chosen):
    assert bool(re.search(HOOK["files"], path)) == chosen


def test_the_hook_calls_a_command_that_the_package_has(broken):
    entry, *arguments = HOOK["entry"].split()
    assert entry in (ROOT / "pyproject.toml").read_text()
    files = sorted(str(path) for path in broken.iterdir())
    done = subprocess.run(
        [sys.executable, "-m", entry, *arguments, *files], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert name_of(30) in done.stdout
