import json
from pathlib import Path

import pytest

from ckaudit.cli.run import run

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"


@pytest.fixture
def told(tmp_path, monkeypatch, capfd):
    """Run a command on a recorded run in an empty folder, under a policy; give exit code, report and conversation."""
    monkeypatch.chdir(tmp_path)

    def ask(name, *options, policy=None, command="triage", file="ckaudit.toml"):
        if policy is not None:
            (tmp_path / file).write_text(policy, encoding="utf-8")
        path = name if isinstance(name, Path) else RUNS / name
        code = run([command, str(path), "-f", "json", *options])
        out, err = capfd.readouterr()
        return code, json.loads(out) if out else None, err

    return ask
