"""A file that is nested too deeply is named in one line, whatever it was to be."""

from pathlib import Path

import pytest

from ckaudit.cli.run import run

RUN = str(Path(__file__).parents[2] / "fixtures" / "runs" / "lr_too_high")
DEEP = 200_000


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("deep.toml", f"select = {'[' * 5000}{']' * 5000}", ["triage", RUN, "--config", "deep.toml"]),
        ("ckaudit.toml", f"x = {'[' * 5000}{']' * 5000}", ["validate", RUN]),
        ("pyproject.toml", f"[tool.ckaudit]\nx = {'[' * 5000}{']' * 5000}", ["triage", RUN]),
        ("b.json", '{"accepted":' + "[" * DEEP, ["triage", RUN, "--baseline", "b.json"]),
        ("probes.jsonl", "[" * DEEP, ["probe", "score", "generations.jsonl", "--probes", "probes.jsonl"]),
    ],
)
def test_it_is_an_error_of_the_file(tmp_path, monkeypatch, capsys, name, text, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(text)
    (tmp_path / "generations.jsonl").write_text('{"id": "train_00", "continuation": "x"}\n')
    assert run(words) == 2
    error = capsys.readouterr().err
    assert name in error
    assert "bug in ckaudit" not in error
