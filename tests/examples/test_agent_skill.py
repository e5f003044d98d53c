"""The skill for coding agents: its front matter is what loaders want, its commands run, and what it says of words holds."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from ckaudit.reports.terminal.screen_text import badge
from tests.forked import ckaudit
from tests.reports.sample import SAMPLES

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[2]
SKILL = (ROOT / "examples/agent-skill/SKILL.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", SKILL, re.DOTALL) for line in block.splitlines()]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with the runs that the skill names: an old one that is ill, a new one, and two good ones."""
    folder = tmp_path_factory.mktemp("skill")
    names = {"old": "lr_too_high", "new": "healthy", "good1": "healthy", "good2": "healthy"}
    for name, fixture in names.items():
        shutil.copytree(ROOT / "fixtures/runs" / fixture, folder / "runs" / name)
    return folder


def test_the_front_matter_has_a_name_and_a_description():
    _, front, body = SKILL.split("---\n", 2)
    told = yaml.safe_load(front)
    assert told.keys() == {"name", "description"}
    assert re.fullmatch(r"[a-z0-9-]{1,64}", told["name"])
    assert len(told["description"]) <= 1024
    assert len(body.splitlines()) <= 70


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_skill_runs(command, runs):
    program, *arguments = shlex.split(command)
    done = ckaudit(*arguments, cwd=runs)
    assert program == "ckaudit"
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout


def test_what_the_skill_says_of_exit_codes_holds(runs):
    limited = ROOT / "fixtures/real/hf_trainer/mistral_lora_4ep"
    done = ckaudit("triage", limited, "--format", "brief")
    assert (done.returncode, done.stdout.split()[0]) == (0, "LIMITED")
    assert ckaudit("triage", limited, "--format", "brief", "--require", "vital").returncode == 2
    assert ckaudit("triage", "runs/old", "--format", "brief", cwd=runs).returncode == 1
    assert ckaudit("diff", "runs/old", "runs/new", cwd=runs).returncode == 0
    assert ckaudit("diff", "runs/new", "runs/old", cwd=runs).returncode == 1
    assert ckaudit("gate", "runs/old", "--against", "runs/good1", cwd=runs).returncode == 1


def test_the_skill_knows_every_word_of_a_verdict():
    words = {badge(make())[0] for make in SAMPLES.values()} | {"SEV0", "SEV2", "NOTE", "LIMITED", "BROKEN"}
    assert all(word in SKILL for word in words)
