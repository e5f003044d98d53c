import json
import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from ckaudit.audit import triage
from tests.forked import training
from tests.recorder.trained import LIGHTNING_WARNINGS, assert_sound

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    "name", ["with_accelerate", "with_huggingface", pytest.param("with_lightning", marks=LIGHTNING_WARNINGS), "plain_pytorch"]
)
def test_an_example_leaves_a_sound_and_healthy_run(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert "ckaudit triage run/" in capsys.readouterr().out
    assert_sound(tmp_path / "run")
    found = triage(tmp_path / "run").findings
    assert not [each for each in found if each.severity != "note" and not each.code.startswith("SYS")]  # others use the machine


def test_no_example_hides_a_library_from_those_beside_it():
    """The folder of a script comes first where Python looks for modules."""
    assert not [path.stem for path in EXAMPLES.glob("*.py") if find_spec(path.stem)]


def test_accelerate_with_two_processes_leaves_a_sound_run(tmp_path):
    # What torchrun tells its processes, but forked from one that has imported the libraries.
    done = training("tests.recorder.trainers_on_ranks", "accelerate", tmp_path)
    assert done.returncode == 0, done.stderr
    assert_sound(tmp_path / "run", judged=7)
    assert json.loads((tmp_path / "run" / "run.json").read_bytes())["sessions"][-1]["world_size"] == 2
    facts = [json.loads(path.read_bytes())["rank_facts"] for path in sorted((tmp_path / "run").glob("*_00000100.rank*.json"))]
    assert len({each["data_hash"] for each in facts}) == len(facts) == 2
    assert len({each["parameter_hash"] for each in facts}) == 1
