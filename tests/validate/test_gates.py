"""What calls ckaudit from outside: the hooks of pre-commit and the GitHub action, as their files are written."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forked import ckaudit
from tests.forked_tools import tools
from tests.validate.material import checkpoint, healthy_run, name_of, write

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[2]
RUNS = ROOT / "fixtures" / "runs"
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
HOOK, TRIAGE_HOOK = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())


def fill(text: str, values: dict[str, str]) -> str:
    """Put values in the place of ${{ expressions }}; an unknown one is an error."""
    return re.sub(r"\$\{\{\s*([\w.-]+)\s*\}\}", lambda match: values[match[1]], str(text))


@pytest.fixture(scope="module", autouse=True)
def _path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Put a `python` whose ckaudit has loaded what it needs first in the path, and before all others the one that runs this."""
    with tools(tmp_path_factory.mktemp("action") / "bin", python="audits") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}")
        yield


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
        environment["GITHUB_STEP_SUMMARY"] = str(tmp_path / "summary.md")
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


def results_of(tmp_path: Path) -> list[list[str]]:
    """Return the rules of the findings in the SARIF file, for each run that was audited."""
    sarif = json.loads((tmp_path / "ckaudit.sarif").read_text())
    assert len({run["automationDetails"]["id"] for run in sarif["runs"]}) == len(sarif["runs"])
    return [[result["ruleId"] for result in run["results"]] for run in sarif["runs"]]


def test_the_action_passes_a_healthy_run_and_leaves_an_empty_sarif_file(tmp_path):
    steps = run_action(tmp_path, run=str(RUNS / "healthy"))
    assert [(name, done.returncode) for name, done in steps] == [("Audit", 0)]
    assert (tmp_path / "output").read_text() == f"sarif={tmp_path}/ckaudit.sarif\n"
    assert results_of(tmp_path) == [[]]
    assert (tmp_path / "summary.md").read_text().startswith("### ckaudit triage: **OK**")


def test_the_action_fails_a_run_that_diverged(tmp_path):
    steps = run_action(tmp_path, run=f"{RUNS / 'healthy'}\n{RUNS / 'lr_too_high'}\n")
    assert [(name, done.returncode) for name, done in steps] == [("Audit", 1)]
    assert "::error " in steps[0][1].stdout
    assert "ckaudit triage: **SEV1**" in (tmp_path / "summary.md").read_text()
    healthy, ill = results_of(tmp_path)
    report = json.loads(ckaudit("triage", RUNS / "lr_too_high", "--format", "json").stdout)
    assert healthy == []
    assert sorted(ill) == sorted(finding["code"] for finding in report["findings"])


@pytest.mark.parametrize(("run", "code"), [("healthy", 0), ("lr_too_high", 1)])
def test_the_action_holds_a_run_against_a_good_one(tmp_path, run, code):
    steps = run_action(tmp_path, run=str(RUNS / run), against=str(RUNS / "healthy"))
    assert steps[-1][1].returncode == code
    assert (tmp_path / "summary.md").read_text().startswith("### ckaudit gate")


def test_the_action_marks_where_a_run_breaks_the_contract(tmp_path, broken):
    steps = run_action(tmp_path, run=f"\n{healthy_run(tmp_path / 'run')}\n{broken}\n", command="validate")
    assert [(name, done.returncode) for name, done in steps] == [("Audit", 1)]
    assert "::error " in steps[0][1].stdout
    assert name_of(30) in steps[0][1].stdout
    assert results_of(tmp_path) == [[], ["SCH004"]]


@pytest.mark.parametrize(("inputs", "code"), [({}, 0), ({"fail-on": "sev2"}, 1), ({"format": "markdown"}, 0)])
def test_the_inputs_of_the_action_reach_the_command(tmp_path, flawed, inputs, code):
    steps = run_action(tmp_path, run=str(flawed), command="validate", **inputs)
    assert steps[-1][0] == "Audit"
    assert steps[-1][1].returncode == code


def test_what_a_baseline_accepts_fails_no_job_and_opens_no_alert(tmp_path, broken):
    known = str(tmp_path / "known.json")
    assert ckaudit("validate", broken, "--baseline", known, "--update-baseline", cwd=ROOT).returncode == 0
    steps = run_action(tmp_path, run=str(broken), command="validate", baseline=known)
    assert [(name, done.returncode) for name, done in steps] == [("Audit", 0)]
    assert "1 finding does not count" in steps[0][1].stdout
    assert results_of(tmp_path) == [[]]


@pytest.mark.parametrize("command", ["triage", "validate"])
@pytest.mark.parametrize("path", ["nowhere", "\n \n"])
def test_the_action_fails_where_there_is_nothing_to_audit(tmp_path, command, path):
    assert run_action(tmp_path, run=path, command=command)[-1][1].returncode == 2


def test_the_page_of_the_job_says_why_there_is_no_report(tmp_path):
    steps = run_action(tmp_path, run=f"{RUNS / 'healthy'}\n<b>nowhere</b>")
    page = (tmp_path / "summary.md").read_text()
    assert "### ckaudit triage: **not audited**\n\n    error: <b>nowhere</b> does not exist\n" in page  # a block of code
    assert "::error title=ckaudit::error: <b>nowhere</b> does not exist" in steps[-1][1].stdout


def test_what_a_gate_finds_stands_at_the_line_where_the_runs_part(tmp_path):
    run_action(tmp_path, run=str(RUNS / "lr_too_high"), against=str(RUNS / "healthy"))
    results = json.loads((tmp_path / "ckaudit.sarif").read_text())["runs"][0]["results"]
    places = {json.dumps(result["locations"][0]["physicalLocation"], sort_keys=True) for result in results}
    assert len(places) == 1
    (place,) = map(json.loads, places)
    assert place["artifactLocation"]["uri"].endswith("lr_too_high/scalars.jsonl")
    line = (RUNS / "lr_too_high" / "scalars.jsonl").read_text().splitlines()[place["region"]["startLine"] - 1]
    assert json.loads(line)["step"] == 1


def test_a_path_is_never_code(tmp_path):
    run_action(tmp_path, run=f"$(touch {tmp_path}/owned); --help")
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


@pytest.mark.parametrize(("run", "code"), [("healthy", 0), ("lr_too_high", 1)])
def test_a_hook_audits_the_run_that_is_named(run, code):
    entry, *arguments = TRIAGE_HOOK["entry"].split()
    assert re.search(TRIAGE_HOOK["files"], "out/trainer_state.json")
    done = subprocess.run([sys.executable, "-m", entry, *arguments, str(RUNS / run)], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == code
