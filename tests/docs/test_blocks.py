"""Every block of the pages that people write is run, parsed or held against what it quotes; none stands there by itself."""

import json
import os
import re
import tomllib
from pathlib import Path

import pytest
import torch
import yaml
from torch import nn

from ckaudit.causes import causes
from ckaudit.cli.run import run
from ckaudit.lab.zoo import FAMILIES
from ckaudit.recorder import Recorder
from ckaudit.recorder.drill.settings import KINDS
from ckaudit.rules import rules
from ckaudit.run.read import read_run

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^(?:<!-- (\w+)\b[^\n]*-->\n)?```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
HERE, COMMANDS = "tests/docs/test_blocks.py", "tests/docs/test_commands_on_pages.py"
TESTED = {
    ("README.md", "python"): "tests/examples/test_readme.py",
    ("README.md", "sh"): "tests/examples/test_readme.py",
    ("README.md", "yaml"): "tests/examples/test_readme.py",
    ("agents.md", ""): COMMANDS,
    ("agents.md", "json"): HERE,
    ("ci.md", "sh"): COMMANDS,
    ("ci.md", "yaml"): HERE,
    ("commands.md", "sql"): HERE,
    ("diff.md", "sh"): COMMANDS,
    ("drill.md", "python"): HERE,
    ("drill.md", "sh"): COMMANDS,
    ("drill.md", "text"): HERE,
    ("fleet.md", "python"): "tests/fleet/test_page.py",
    ("gate.md", "sh"): COMMANDS,
    ("gate.md", "toml"): HERE,
    ("importers.md", ""): COMMANDS,
    ("object-storage.md", "python"): "tests/recorder/test_spool_s3.py",
    ("object-storage.md", "sh"): "tests/remote/test_page.py",
    ("plugins.md", "toml"): HERE,
    ("policy.md", ""): "tests/policy/test_document.py",
    ("policy.md", "sh"): COMMANDS,
    ("policy.md", "toml"): "tests/policy/test_document.py",
    ("recording.md", "python"): HERE,
    ("reliability.md", "sh"): COMMANDS,
    ("siblings.md", "sh"): COMMANDS,
    ("trainers.md", "python"): "tests/examples/test_readme.py",
    ("watch.md", "python"): "tests/alarm/test_watch.py",
}
"""The test of each kind of block that docs/executed.py, docs/screens.py or docs/drawing.py does not write."""
DRAWN = {("verdict.md", "text"), ("architecture.md", "mermaid")}


def page(name):
    return (ROOT / name if name == "README.md" else DOCS / name).read_text(encoding="utf-8")


def blocks(name, language):
    """Return the blocks of a language of a page, without those that a script writes or runs."""
    return [body for mark, found, body in BLOCK.findall(page(name)) if found == language and not mark]


def test_every_block_has_its_test():
    names = ["README.md", *(path.name for path in DOCS.glob("*.md"))]
    found = {(name, language) for name in names for mark, language, _ in BLOCK.findall(page(name)) if not mark}
    assert found - DRAWN == TESTED.keys()
    assert all((ROOT / test).is_file() for test in TESTED.values())


def test_the_loop_on_recording_is_the_one_of_the_readme_and_its_calls_are_those_of_a_recorder():
    loop, *_ = blocks("recording.md", "python")
    assert loop in blocks("README.md", "python")
    calls = set(re.findall(r"^\| `recorder\.(\w+)\(", page("recording.md"), re.MULTILINE))
    assert len(calls) > 6
    assert not [name for name in calls if not callable(getattr(Recorder, name, None))]


def test_the_loop_with_a_closure_records_its_gradients(tmp_path, monkeypatch):
    (block,) = [block for block in blocks("recording.md", "python") if "closure" in block]
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    inputs = torch.randn(32, 3)
    loader = [(inputs, inputs.prod(1, keepdim=True))] * 20
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=3)
    exec(block, {"model": model, "optimizer": optimizer, "loader": loader, "criterion": nn.functional.mse_loss})
    assert len(read_run(tmp_path / "run").scalars["grad_global_norm"].steps) == 20


def test_scores_of_the_user_s_own_are_logged_under_names_that_are_judged(tmp_path):
    (block,) = [block for block in blocks("recording.md", "python") if "microbench_score" in block]
    model = nn.Linear(2, 1)
    with Recorder(model, tmp_path, optimizer=torch.optim.SGD(model.parameters(), 0.1)) as recorder:
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()
            recorder.step(1.0)
            exec(block, {"recorder": recorder})
    score = read_run(tmp_path).scalars["microbench_score"]
    assert {*score.labels} == {"val_accuracy", "episode_return"}
    assert score.values[-1].tolist() == [0.83, 212.0]


def test_networks_that_train_against_each_other_are_two_runs_that_say_so(tmp_path, monkeypatch):
    (block,) = [block for block in blocks("recording.md", "python") if "discriminator" in block]
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    given = {"loader": [torch.randn(64, 2) + 3 for _ in range(60)], "draw_noise": lambda size: torch.randn(size, 4)}
    for name, short, inputs, outputs in (("generator", "g", 4, 2), ("discriminator", "d", 2, 1)):
        given[name] = nn.Sequential(nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, outputs))
        given[f"{short}_optimizer"] = torch.optim.Adam(given[name].parameters(), 1e-3, betas=(0.5, 0.999))
    exec(block, given | {"softplus": nn.functional.softplus})
    for name in ("generator", "discriminator"):
        run = read_run(tmp_path / "runs" / name)
        assert run.manifest.takes_turns is True
        assert run.manifest.sessions[-1].look_errors == 0
        own = {f"{module}.{kind}" for module in (0, 2) for kind in ("weight", "bias")}
        assert {*run.manifest.tensors} == own
        assert len(run.scalars["grad_global_norm"].steps) == 60


def test_the_server_of_the_agents_page_is_started_by_a_command_that_there_is(capfd):
    (text,) = blocks("agents.md", "json")
    server = json.loads(text)["mcpServers"]["ckaudit"]
    assert server["command"] == "ckaudit"
    assert run([server["args"][0], "--help"]) == 0
    assert "Usage: ckaudit mcp" in capfd.readouterr().out


def test_the_jobs_of_ci_name_hooks_and_inputs_that_there_are():
    hooks, action = (yaml.safe_load(text)[0] for text in blocks("ci.md", "yaml"))
    known = {hook["id"] for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))}
    assert {hook["id"] for hook in hooks["hooks"]} <= known
    assert action["with"].keys() <= yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["inputs"].keys()


def test_the_gate_of_the_page_is_a_policy_that_holds(tmp_path, capfd):
    (text,) = blocks("gate.md", "toml")
    (tmp_path / "ckaudit.toml").write_text(text, encoding="utf-8")
    healthy = str(ROOT / "fixtures" / "runs" / "healthy")
    asked = ["gate", healthy, "--against", healthy, "--config", str(tmp_path / "ckaudit.toml"), "--format", "json"]
    assert run(asked) == 0
    terms, wanted = json.loads(capfd.readouterr().out)["gate"], tomllib.loads(text)["gate"]
    assert {"final_loss", "validation_loss", "speed"} <= {*terms["counts"]}
    assert {"speed", "validation"} <= wanted["allow"].keys()
    assert terms["allowed"] == {"speed": 0.1}  # a share; the other allowance is a number of the question's unit


def test_the_entry_points_of_the_plugin_are_those_of_the_example():
    (text,) = blocks("plugins.md", "toml")
    declared = tomllib.loads((ROOT / "examples" / "plugin" / "pyproject.toml").read_text(encoding="utf-8"))
    assert tomllib.loads(text)["project"]["entry-points"] == declared["project"]["entry-points"]


def test_the_query_of_a_table_of_metrics_has_rows(tmp_path, monkeypatch):
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    (command,) = re.findall(r"DuckDB reads `ckaudit ([^`]+)`", page("commands.md"))
    words = [str(ROOT / "fixtures" / "runs" / "healthy") if word == "run/" else word for word in command.split()]
    assert run(words) == 0
    (query,) = blocks("commands.md", "sql")
    assert len(duckdb.sql(query).fetchall()) > 5


def test_what_pages_count_is_as_many_as_there_are():
    logs = json.loads((ROOT / "benchmarks" / "real_runs.json").read_text(encoding="utf-8"))
    assert int(re.search(r"(\d+) public logs", page("reliability.md"))[1]) == len(logs)
    assert int(re.search(r"over (\d+) families", page("reliability.md"))[1]) == len(FAMILIES)
    shown = len(re.findall(r"^### ", page("gallery.md"), re.MULTILINE))
    assert f"{shown} illnesses" in page("README.md")


def test_the_drill_on_paper_knows_its_faults_rules_and_causes(monkeypatch):
    (screen,) = blocks("drill.md", "text")
    faults = {*re.findall(r"^([a-z_0-9]+)  ", screen, re.MULTILINE)} - {"fault"}
    assert len(faults) == 15
    assert faults < {*KINDS}
    codes = {rule.code for rule in rules().values()}
    assert not [code for code in re.findall(r"\b[A-Z]+\d{3}\b", screen) if code not in codes]
    told = re.findall(r"(?:sev\d) [A-Z0-9.]+ +([a-z_]{5,})\n", screen)
    assert len(told) > 8
    assert not [name for name in told if not any(cause.startswith(name) for cause in causes())]
    (line,) = blocks("drill.md", "python")
    for value, folder in (("1", "/tmp/drill"), (None, "checkpoints/")):
        monkeypatch.setenv("CKAUDIT_DRILL", value) if value else monkeypatch.delenv("CKAUDIT_DRILL")
        names = {"os": os}
        exec(line, names)
        assert names["output"] == folder
