"""The workflow of examples/gate, step by step: its own commands on a good change, a bad one, and one that cannot be compared."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.forked_tools import tools

yaml = pytest.importorskip("yaml")
GATE = Path(__file__).parents[2] / "examples" / "gate"
(JOB,) = yaml.safe_load((GATE / "workflow.yml").read_text())["jobs"].values()
STEPS = {step["name"]: step["run"] for step in JOB["steps"] if "run" in step}


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A folder with the code as it was and its good runs, and a `ckaudit` and a `python` on the path."""
    folder = tmp_path_factory.mktemp("gate")
    with tools(folder / "bin"):
        copy(folder / "base")
        assert shell("Train the good runs", folder) == (0, "good/1")
        yield folder


def copy(folder):
    """Copy the example, with a fifth of its steps."""
    shutil.copytree(GATE, folder)
    script = folder / "canary.py"
    text = script.read_text()
    assert "STEPS = 31, 24, 16, 200" in text
    script.write_text(text.replace("STEPS = 31, 24, 16, 200", "STEPS = 31, 24, 16, 40"))


def shell(step, folder):
    """Run one step of the workflow as its runner does; give its code and the first words of what it printed."""
    surroundings = os.environ | {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
    }
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[step]]
    done = subprocess.run(command, cwd=folder, env=surroundings, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, (done.stdout.split(":")[0] if step != "Gate" else done.stdout + done.stderr)


def change(folder, before, after):
    """Make the code as it would be: the code as it was with one change, trained by the workflow."""
    for name in ("head", "canary"):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "summary.md").unlink(missing_ok=True)
    copy(folder / "head")
    recipe = folder / "head" / "recipe.toml"
    text = recipe.read_text()
    assert before in text
    recipe.write_text(text.replace(before, after))
    assert shell("Train the canary", folder) == (0, "canary/1")
    return shell("Gate", folder)


def test_every_step_that_is_run_is_known():
    assert list(STEPS) == ["Install", "Train the good runs", "Train the canary", "Gate"]


def test_a_good_change_passes(workplace):
    code, output = change(workplace, "weight_decay = 0.1", "weight_decay = 0.05")
    assert (code, "::error" in output) == (0, False)
    assert "**PASS**" in (workplace / "summary.md").read_text()


def test_a_bad_change_fails_and_says_what_is_worse_and_since_when(workplace):
    code, output = change(workplace, "learning_rate = 3e-3", "learning_rate = 3e-4")
    assert code == 1
    first = output.splitlines()[0]
    assert first.startswith("::error title=DIFF002 smoothed_loss::")
    assert "step 1" in first
    summary = (workplace / "summary.md").read_text().splitlines()[0]
    assert "**FAIL**" in summary
    assert "the runs part at step 1" in summary
