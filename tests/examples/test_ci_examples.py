"""The jobs of examples/ci, their own lines run as GitLab and Jenkins run them: on a good run, ill ones, and none."""

import os
import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.forked_tools import tools
from tests.junit_schema import junit_schema

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[2]
RUNS = ROOT / "fixtures" / "runs"
GITLAB = yaml.safe_load((ROOT / "examples" / "ci" / "gitlab-ci.yml").read_text())
JENKINSFILE = (ROOT / "examples" / "ci" / "Jenkinsfile").read_text()
ILL = [("healthy", "success"), ("zeroed_projection", "warning"), ("lr_too_high", "failed"), ("", "failed")]
CANARIES = [("healthy", "success"), ("lr_too_high", "failed"), ("experts_two_ranks", "failed"), ("", "failed")]


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """A folder with a `ckaudit` that has loaded what it needs."""
    with tools(tmp_path_factory.mktemp("ci") / "bin") as folder:
        yield folder


@pytest.fixture
def workplace(tmp_path, programs):
    """Return what makes a working folder with a canary, a good run, and a `ckaudit` where each of the two programs looks."""

    def make(canary):
        (tmp_path / "runs" / "good").mkdir(parents=True)
        (tmp_path / "runs" / "good" / "1").symlink_to(RUNS / "healthy")
        if canary:
            (tmp_path / "runs" / "canary").symlink_to(RUNS / canary)
        (tmp_path / ".venv").mkdir()
        (tmp_path / ".venv" / "bin").symlink_to(programs)
        return tmp_path

    return make


def shell(command, folder, variables):
    """Run a command in a folder, and return its exit code and what it printed."""
    surroundings = os.environ | variables | {"PATH": f"{folder / '.venv' / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=folder, env=surroundings, capture_output=True, text=True, check=False, timeout=120)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def judge_page(file, *, fails):
    """Hold a JUnit file against its schema, and its failures against the job's outcome."""
    junit_schema().validate(file.read_text())
    assert (ET.parse(file).getroot().get("failures") != "0") == fails


def gitlab_job(name):
    """Return a job with what it extends, and its lines: those of before_script and script run in one shell."""
    job = GITLAB[GITLAB[name]["extends"]] | GITLAB[name]
    return job, [line for line in (*job["before_script"], *job["script"]) if " pip install " not in line]


def run_gitlab(name, folder):
    """Run the lines of a job as a runner does; return what becomes of the job, and what it printed."""
    job, lines = gitlab_job(name)
    script = "\n".join(["set -eo pipefail", *lines])
    code, output = shell(["bash", "--noprofile", "--norc", "-c", script], folder, GITLAB["variables"])
    allowed = job.get("allow_failure", {}).get("exit_codes")
    return "success" if code == 0 else "warning" if code == allowed else "failed", output


def test_gitlab_knows_the_words_and_every_job_is_run_here_but_for_the_training():
    jobs = {name: job for name, job in GITLAB.items() if name not in ("stages", "variables")}
    assert set(jobs) == {"train", ".ckaudit", "triage", "gate"}
    known = {"stage", "image", "script", "before_script", "artifacts", "extends", "allow_failure"}
    assert all(set(job) <= known for job in jobs.values())
    assert {job["stage"] for job in jobs.values() if "stage" in job} == set(GITLAB["stages"])
    assert gitlab_job("triage")[0]["allow_failure"]["exit_codes"] not in (1, 2)


@pytest.mark.parametrize(("run", "outcome"), ILL)
def test_a_job_of_gitlab_audits_a_run(workplace, run, outcome):
    folder = workplace(run)
    told, output = run_gitlab("triage", folder)
    assert told == outcome, output
    artifacts = gitlab_job("triage")[0]["artifacts"]
    assert artifacts["when"] == "always"
    written = {file.name for file in folder.glob(artifacts["reports"]["junit"])}
    assert written == ({"triage.xml"} if run else set())
    if run:
        judge_page(folder / "audit" / "triage.xml", fails=outcome == "failed")
        assert "<!doctype html>" in (folder / artifacts["paths"][0] / "report.html").read_text()[:200].lower()
    else:
        assert "runs/canary does not exist" in output


@pytest.mark.parametrize(("run", "outcome"), CANARIES)
def test_a_job_of_gitlab_holds_a_run_against_good_ones(workplace, run, outcome):
    folder = workplace(run)
    told, output = run_gitlab("gate", folder)
    assert told == outcome, output
    if run:
        judge_page(folder / "audit" / "gate.xml", fails=outcome == "failed")
        assert "ckaudit gate" in (folder / "audit" / "gate.md").read_text().splitlines()[0]


# Each `sh` is a shell of its own; the first that fails ends the build, but for those inside of catchError.
STEP = re.compile(r"^(?P<indent> +)(?:sh '(?P<sh>.+)'.*|stage\('(?P<stage>\w+)'\) \{|catchError\(.+\) \{)$", re.MULTILINE)
JENKINS_VARIABLES = dict(re.findall(r"^ +([A-Z]+) = '(.+?)'", JENKINSFILE, re.MULTILINE))


def jenkins_steps():
    """Yield each step that runs a shell: its stage, its command, and whether its failure only makes the build unstable."""
    stage, catching = "", None
    for line in STEP.finditer(JENKINSFILE):
        stage = line["stage"] or stage
        if line["sh"]:
            yield stage, line["sh"], catching is not None and len(line["indent"]) > catching
        catching = len(line["indent"]) if "catchError" in line[0] else catching if line["sh"] else None


def run_jenkins(stage, folder):
    """Run the steps of a stage as an agent does; return what becomes of the build, and what they printed."""
    outcome, output = "success", ""
    for of, command, is_caught in jenkins_steps():
        code, more = shell(["sh", "-xe", "-c", command], folder, JENKINS_VARIABLES) if of == stage else (0, "")
        output += more
        if code and not is_caught:
            return "failed", output
        outcome = "warning" if code else outcome
    return outcome, output


def test_every_step_of_jenkins_is_read_and_its_brackets_close():
    steps = [*jenkins_steps()]
    assert len(steps) == JENKINSFILE.count(" sh ")
    assert [*dict.fromkeys(stage for stage, _, _ in steps)] == ["Install", "Train", "Triage", "Gate"]
    assert [command for _, command, is_caught in steps if is_caught] == [steps[-4][1]]
    assert GITLAB["variables"] == JENKINS_VARIABLES
    bare = re.sub(r"//.*|'[^']*'", "", JENKINSFILE)
    assert all(bare.count(opened) == bare.count(closed) > 0 for opened, closed in ("{}", "()"))


@pytest.mark.parametrize(("run", "outcome"), ILL[1::2])
def test_a_stage_of_jenkins_audits_a_run(workplace, run, outcome):
    folder = workplace(run)
    told, output = run_jenkins("Triage", folder)
    assert told == outcome, output
    pages = {pattern: {file.name for file in folder.glob(pattern)} for pattern in re.findall(r"'(audit/\S+)'", JENKINSFILE)}
    assert pages == {"audit/*.xml": {"triage.xml"} if run else set(), "audit/*": {"triage.xml", "report.html"} if run else set()}
    if run:
        judge_page(folder / "audit" / "triage.xml", fails=outcome == "failed")


@pytest.mark.parametrize(("run", "outcome"), CANARIES[1:2])
def test_a_stage_of_jenkins_holds_a_run_against_good_ones(workplace, run, outcome):
    folder = workplace(run)
    (folder / "audit").mkdir()
    told, output = run_jenkins("Gate", folder)
    assert told == outcome, output
    if run:
        judge_page(folder / "audit" / "gate.xml", fails=outcome == "failed")


def test_both_do_the_same():
    ours = [command.removeprefix(".venv/bin/") for _, command, _ in jenkins_steps() if "ckaudit " in command]
    theirs = [line for name in ("triage", "gate") for line in gitlab_job(name)[1] if line.startswith("ckaudit ")]
    assert ours == [line.removesuffix(" || exit 42") for line in theirs]
