"""What is said where the library of an extra is missing."""

import json
import subprocess
import sys
from importlib.metadata import Distribution
from pathlib import Path
from types import SimpleNamespace

import pytest

from ckaudit.optional import install_command

ROOT = Path(__file__).parents[1]
WANDB = next((ROOT / "fixtures/trackers/wandb").rglob("*.wandb"))
EVENTS = next((ROOT / "fixtures/real").rglob("events.out.tfevents.*"))


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'ckaudit[wandb]'"),
        ("not JSON", "pip install 'ckaudit[wandb]'"),
        ({"url": "file:///srv/my%20clone", "dir_info": {}}, "pip install '/srv/my clone[wandb]'"),
        ({"url": "file:///srv/clone", "dir_info": {"editable": True}}, "pip install -e '/srv/clone[wandb]'"),
        ({"url": Path.cwd().as_uri(), "dir_info": {}}, "pip install '.[wandb]'"),
        (
            {"url": "https://example.org/ckaudit.git", "vcs_info": {"vcs": "git", "commit_id": "0"}},
            "pip install 'ckaudit[wandb] @ git+https://example.org/ckaudit.git'",
        ),
    ],
)
def test_the_command_installs_from_where_this_copy_came_from(monkeypatch, origin, command):
    text = origin if origin is None or isinstance(origin, str) else json.dumps(origin)
    monkeypatch.setattr(Distribution, "from_name", lambda _: SimpleNamespace(read_text=lambda _: text))
    assert install_command("wandb") == command


@pytest.mark.parametrize(
    ("arguments", "library", "extra"),
    [
        (["triage", str(WANDB)], "google", "wandb"),
        (["triage", str(EVENTS)], "google", "tensorboard"),
        (["metrics", str(WANDB)], "google", "wandb"),
        (["report", str(ROOT / "fixtures/runs/healthy"), "-o", "report.html"], "plotly", "report"),
        (["lab", "run", "healthy", "--out", "run"], "torch", "torch"),
    ],
)
def test_a_command_without_its_library_names_the_extra(tmp_path, arguments, library, extra):
    code = f"import sys; sys.modules[{library!r}] = None; from ckaudit.cli.run import run; sys.exit(run({arguments!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"[{extra}]" in done.stderr
    assert "bug" not in done.stderr
