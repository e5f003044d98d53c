"""An option that has no effect is refused, or a note says so."""

import json
from pathlib import Path

import pytest

from ckaudit.cli.run import run

RUN = str(Path(__file__).parents[2] / "fixtures" / "runs" / "lr_too_high")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["triage", RUN, "--questions", "--event", "last"], "--questions and --event are two questions"),
        (["triage", RUN, "--questions", "3", "--benchmark-drop"], "--questions and --benchmark-drop are two questions"),
        (["triage", RUN, "--save-map"], "--save-map without --map"),
        (["import", "log.csv", "--save-map"], "--save-map without --map"),
        (["report", RUN, "-o", "report.pdf"], "a report is not written as .pdf"),
        (["report", RUN, "-o", "report.json"], "a report is not written as .json"),
    ],
)
def test_options_without_an_effect_are_refused(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text("step,loss\n1,2.5\n2,2.4\n")
    assert run(words) == 2
    assert message in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"log.csv"}


@pytest.mark.parametrize(
    ("options", "named"),
    [(["--map", "loss=x"], "--map"), (["--run", "3"], "--run"), (["--map", "loss=x", "--run", "3"], "--map and --run")],
)
@pytest.mark.parametrize("command", ["triage", "metrics"])
def test_a_run_folder_needs_neither_columns_nor_a_choice(tmp_path, monkeypatch, capsys, command, options, named):
    monkeypatch.chdir(tmp_path)
    run([command, RUN, "-f", "json", *options])
    told = capsys.readouterr()
    assert f"not a log of another program: {named} had no effect" in json.loads(told.out)["notes"]
    assert "hint" not in told.err  # nothing that was named is worth keeping in a policy


def test_a_log_takes_both_without_such_a_note(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text("step,x\n" + "".join(f"{step},{3 - step / 100}\n" for step in range(1, 60)))
    run(["triage", "log.csv", "-f", "json", "--map", "loss=x", "--run", "1"])
    assert not any("no effect" in note for note in json.loads(capsys.readouterr().out)["notes"])
