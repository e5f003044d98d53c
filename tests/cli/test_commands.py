import json
import os
from pathlib import Path

import pytest

from ckaudit.cli.options import base
from ckaudit.cli.run import run
from ckaudit.contract.schema.import_options import ImportOptions
from ckaudit.reports import FORMATS, render
from tests.reports.sample import clean, ill, invalid


def test_validate_passes_every_path_on(engine):
    calls = engine(invalid())
    run(["validate", "a", "b/c.json", "-f", "json"])
    ((paths, asked),) = calls
    assert paths == [Path("a"), Path("b/c.json")]
    assert set(asked) == {"criteria", "progress", "units"}


def test_triage_passes_step_and_columns_on(engine):
    calls = engine(ill())
    run(["triage", "run", "--step", "500", "--map", "loss=train/loss", "--map", "lr=a=b"])
    ((path, asked),) = calls
    assert path == Path("run")
    assert (asked["step"], asked["import_options"].columns) == (500, {"loss": "train/loss", "lr": "a=b"})


def test_triage_without_step_judges_the_end(engine):
    calls = engine(ill())
    run(["triage", "run"])
    assert (calls[0][1]["step"], calls[0][1]["import_options"]) == (None, ImportOptions())


@pytest.mark.parametrize("kind", FORMATS)
def test_stdout_is_the_report_and_nothing_else(engine, capfd, kind):
    engine(ill())
    assert run(["triage", "run", "--format", kind]) == 1
    out, err = capfd.readouterr()
    assert (out, err) == (render(ill(), kind), "")


def test_quiet_and_verbose_reach_the_report(engine, capfd):
    engine(invalid())
    run(["validate", "run", "-q"])
    assert "files read" not in capfd.readouterr().out
    run(["validate", "run", "-v"])
    assert "5 files read" in capfd.readouterr().out


def test_output_is_written_whole_and_announced(engine, capfd, tmp_path):
    engine(ill())
    file = tmp_path / "report.json"
    file.write_text("old")
    assert run(["triage", "run", "-f", "json", "-o", str(file)]) == 1
    out, err = capfd.readouterr()
    assert (out, err) == ("", f"wrote {file}\n")
    assert file.read_text() == render(ill(), "json")
    assert list(tmp_path.iterdir()) == [file]


def test_a_failed_write_leaves_nothing_behind(engine, capfd, tmp_path):
    engine(ill())
    (tmp_path / "taken").mkdir()
    assert run(["triage", "run", "-o", str(tmp_path / "taken")]) == 2
    assert "error: cannot write" in capfd.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_output_to_a_device_is_written_straight(engine):
    engine(ill())
    assert run(["triage", "run", "-o", os.devnull]) == 1
    assert not Path(os.devnull).is_file()


def test_output_through_a_link_keeps_the_link(engine, tmp_path):
    engine(ill())
    (tmp_path / "link.json").symlink_to("real.json")
    run(["triage", "run", "-f", "json", "-o", str(tmp_path / "link.json")])
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text())["command"] == "triage"


def test_file_names_start_from_here_where_one_folder_was_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "x.json").touch()
    assert base(["runs/a/"]) == "runs/a"
    assert base([str(tmp_path / "runs")]) == "runs"
    assert base(["."]) == ""
    assert base(["runs/x.json"]) == ""
    assert base(["runs", "runs/a"]) == ""
    assert base(["runs", "runs"]) == "runs"
    monkeypatch.chdir(tmp_path / "runs" / "a")
    assert base([str(tmp_path / "runs")]) == str(tmp_path / "runs")


@pytest.mark.parametrize("command", ["validate", "triage", "metrics", "convert", "drill", "mcp"])
def test_help_has_examples_and_exit_codes(capfd, command):
    assert run([command, "--help"]) == 0
    out = capfd.readouterr().out
    assert "Examples:\n    ckaudit " + command in out
    assert "Exit codes:\n    0  " in out
    assert "\x1b" not in out


COMMANDS = ["validate", "triage", "metrics", "explain", "coverage", "convert", "import", "data", "probe", "hash"]
COMMANDS += ["resume-check", "drill", "mcp", "docs"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_screen_of_80_columns(capfd, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    assert run([command, "--help"]) == 0
    assert max(map(len, capfd.readouterr().out.splitlines())) <= 80


def test_names_that_are_known_are_explained_beside_one_that_is_not(capfd):
    assert run(["explain", "F6", "M99", "TRI-4"]) == 2
    out, err = capfd.readouterr()
    assert out.startswith("spectral_norm")
    assert "Heads look at one token each" in out
    assert err.startswith("error: unknown name 'M99'\nhint: did you mean M")


def test_a_clean_run_says_so_in_one_line(engine, capfd):
    engine(clean())
    assert run(["triage", "run", "--fail-on", "note"]) == 0
    assert capfd.readouterr().out.startswith("OK  Nothing found in 3 checks.\n")
