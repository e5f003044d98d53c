import runpy
from pathlib import Path

import pytest
import torch

from ckaudit.audit import triage
from tests.recorder.trained import LIGHTNING_WARNINGS, assert_sound

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    "name", ["accelerate", "huggingface", pytest.param("lightning", marks=LIGHTNING_WARNINGS), "plain_pytorch"]
)
def test_an_example_leaves_a_sound_and_healthy_run(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert "ckaudit triage run/" in capsys.readouterr().out
    assert_sound(tmp_path / "run")
    assert triage(tmp_path / "run").severity in (None, "note")
