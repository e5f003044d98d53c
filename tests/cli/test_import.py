"""`ckaudit import`: what it writes, where, and what it says."""

import json

import pytest

from ckaudit.cli.run import run


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.v2.csv").write_text("iteration,objective,cost\n1,2.5,1\n2,2.25,1\n")
    return "log.v2.csv"


def test_a_log_becomes_a_run_folder_named_after_it(log, tmp_path, capfd):
    assert run(["import", log, "--map", "loss=objective"]) == 0
    stdout, stderr = capfd.readouterr()
    assert stdout == ""
    assert stderr.startswith("wrote log.ckaudit: 2 lines of 1 name\nnote: read as CSV: 2 rows")
    assert "left out, because no common name says what they are: cost" in stderr
    first = json.loads((tmp_path / "log.ckaudit/scalars.jsonl").read_text().splitlines()[0])
    assert first == {"schema_version": "ck.scalars.v1", "step": 1, "train_loss_raw": 2.5}
    assert run(["validate", "log.ckaudit"]) == 0


def test_what_stands_there_stays_without_force(log, capfd):
    assert run(["import", log, "--map", "loss=objective", "-o", "run", "-q"]) == 0
    assert run(["import", log, "--map", "loss=objective", "-o", "run", "-q"]) == 2
    assert "holds a run already" in capfd.readouterr().err
    assert run(["import", log, "--map", "loss=objective", "-o", "run", "-q", "--force"]) == 0
    assert capfd.readouterr() == ("", "")


def test_runs_and_formats_are_listed(log, capfd):
    assert run(["import", log, "--map", "loss=objective", "--list"]) == 0
    assert capfd.readouterr().out == "1  steps 1 to 2\n"
    assert run(["import", "--formats"]) == 0
    formats = dict(line.split(maxsplit=1) for line in capfd.readouterr().out.splitlines())
    assert formats["huggingface"] == "Hugging Face trainer_state.json"
    assert list(formats)[-1] == "printedtable"  # those without a mark of their own come last


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is nothing to import"),
        (["nowhere.csv"], "nowhere.csv does not exist"),
        (["log.v2.csv", "--format", "xml"], "no format is called 'xml'"),
        (["log.v2.csv", "--map", "loss=objective", "--run", "3"], "log.v2.csv has no run '3'"),
        (["log.v2.csv"], "none of its columns has a name that is known"),
        (["log.v2.csv", "--map", "loss=objective", "-o", "log.v2.csv/run"], "cannot write to log.v2.csv/run"),
    ],
)
def test_what_cannot_be_is_said(log, capfd, arguments, message):
    assert run(["import", *arguments]) == 2
    assert message in capfd.readouterr().err


def test_a_run_whose_name_is_an_escape_sequence_is_listed_as_text(tmp_path, capfd):
    run_names = ("\x1b[31mred", "plain")
    (tmp_path / "chart.csv").write_text(
        "Step," + ",".join(f'"{name} - loss"' for name in run_names) + "\n1,2.5,2.0\n2,2.25,1.5\n"
    )
    run(["import", str(tmp_path / "chart.csv"), "--list"])
    out, err = capfd.readouterr()
    assert "red" in out + err
    assert "\x1b" not in out + err
