"""What is said where the library of an extra is missing."""

import json
import re
import subprocess
import sys
from importlib.metadata import Distribution
from pathlib import Path
from types import SimpleNamespace

import pytest

from ckaudit.audit.vital_checks import CALLBACK
from ckaudit.optional import install_command
from tests.forked import ckaudit

ROOT = Path(__file__).parents[1]
WANDB = next((ROOT / "fixtures/trackers/wandb").rglob("*.wandb"))
EVENTS = next((ROOT / "fixtures/real").rglob("events.out.tfevents.*"))


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'ckaudit[wandb]'"),
        ("not JSON", "pip install 'ckaudit[wandb]'"),
        ({"url": "file:///no/clone/any/more", "dir_info": {}}, "pip install 'ckaudit[wandb]'"),
        ({"url": Path.cwd().as_uri(), "dir_info": {}}, "pip install '.[wandb]'"),
        (
            {"url": "https://example.org/ckaudit.git", "vcs_info": {"vcs": "git", "commit_id": "0"}},
            "pip install 'ckaudit[wandb] @ git+https://example.org/ckaudit.git'",
        ),
    ],
)
def test_the_command_installs_an_extra_from_where_this_copy_came_from(monkeypatch, origin, command):
    text = origin if origin is None or isinstance(origin, str) else json.dumps(origin)
    monkeypatch.setattr(Distribution, "from_name", lambda _: SimpleNamespace(read_text=lambda _: text))
    assert install_command("wandb") == command


def test_a_clone_elsewhere_and_a_wheel_are_named_by_their_path(monkeypatch, tmp_path):
    clone, wheel = tmp_path / "my clone", tmp_path / "ckaudit-0.1.0-py3-none-any.whl"
    clone.mkdir()
    wheel.touch()
    origins = [
        ({"url": clone.as_uri(), "dir_info": {}}, f"pip install '{clone}[wandb]'"),
        ({"url": clone.as_uri(), "dir_info": {"editable": True}}, f"pip install -e '{clone}[wandb]'"),
        ({"url": wheel.as_uri(), "archive_info": {}}, f"pip install '{wheel}[wandb]'"),
    ]
    for origin, command in origins:
        text = json.dumps(origin)
        monkeypatch.setattr(Distribution, "from_name", lambda _, text=text: SimpleNamespace(read_text=lambda _: text))
        assert install_command("wandb") == command


# What is imported without which libraries, those without torch first: the others leave it loaded.
WITHOUT = [
    ("from ckaudit import Recorder", ["torch"], "torch"),
    ("from ckaudit.recorder import Recorder", ["torch"], "torch"),
    ("from ckaudit.recorder.huggingface import RecorderCallback", ["torch"], "transformers"),
    ("from ckaudit.recorder.lightning import RecorderCallback", ["torch"], "lightning"),
    ("from ckaudit.recorder.huggingface import RecorderCallback", ["transformers"], "transformers"),
    ("import ckaudit.recorder.lightning", ["lightning", "lightning.pytorch", "pytorch_lightning"], "lightning"),
]
IMPORTS = f"""
import sys
for line, missing, _ in {WITHOUT!r}:
    sys.modules.update(dict.fromkeys(missing))
    try:
        exec(line)
        print("it was imported")
    except ModuleNotFoundError as error:
        print(error)
    for name in [name for name in sys.modules if name in missing or name.partition(".")[0] == "ckaudit"]:
        del sys.modules[name]
"""


def test_an_import_without_its_library_names_the_command():
    done = subprocess.run([sys.executable, "-c", IMPORTS], cwd=ROOT, capture_output=True, text=True, check=True)
    for message, (line, missing, extra) in zip(done.stdout.splitlines(), WITHOUT, strict=True):
        assert len(missing) > 1 or f"needs {missing[0]}" in message, line  # Lightning has two names
        assert f"[{extra}]" in message, line


TRAINERS = {"huggingface": ("transformers", "TrainerCallback"), "lightning": ("lightning.pytorch", "Callback")}
ADVISED = """
import sys, types
import ckaudit
for expression, library, base in {asked!r}:
    part = types.SimpleNamespace(**{{base: object}})  # the library itself takes seconds
    sys.modules.update(dict.fromkeys((library, library.split(".")[0]), part))
    print(eval(expression).__module__)
"""


def test_the_callbacks_that_are_advised_need_no_import_of_their_own():
    expressions = {trainer: re.findall(r"ckaudit\.\S+Callback", CALLBACK[trainer]) for trainer in TRAINERS}
    asked = [(expression, *TRAINERS[trainer]) for trainer, (expression,) in expressions.items()]
    script = ADVISED.format(asked=asked)
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"ckaudit.recorder.{trainer}" for trainer in TRAINERS]


@pytest.mark.parametrize(
    ("arguments", "library", "extra"),
    [
        (["triage", str(WANDB)], "google", "wandb"),
        (["triage", str(EVENTS)], "google", "tensorboard"),
        (["metrics", str(WANDB)], "google", "wandb"),
        (["report", str(ROOT / "fixtures/runs/healthy"), "-o", "report.html"], "plotly", "report"),
        (["lab", "run", "healthy", "--out", "run"], "torch", "torch"),
        (["data", str(ROOT / "README.md")], "rensa", "data"),
        (["data", str(ROOT / "README.md")], "py3langid", "data"),
        (["data", str(ROOT / "README.md"), "--tokenizer", "tokenizer.json"], "tokenizers", "data"),
        (["gate", str(WANDB), "--against", str(WANDB)], "google", "wandb"),
        (["diff", str(EVENTS), str(EVENTS)], "google", "tensorboard"),
        (["watch", str(WANDB)], "google", "wandb"),
        (["mcp", str(ROOT / "fixtures/runs")], "mcp", "mcp"),
        (["mcp", str(ROOT / "fixtures/runs")], "mcp_types", "mcp"),
    ],
)
def test_a_command_without_its_library_names_the_extra(tmp_path, arguments, library, extra):
    done = ckaudit(*arguments, without=[library], cwd=tmp_path)
    assert done.returncode == 2
    assert f"[{extra}]" in done.stderr
    assert "bug" not in done.stderr
