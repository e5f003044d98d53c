"""Logs below a folder: found, listed with their kinds, one taken by its number or path; links, bounds and odd names."""

import json
import os
import shutil
from pathlib import Path

import pytest

from ckaudit.audit.load_run import is_ours, open_run
from ckaudit.cli.run import run as run_cli
from ckaudit.contract.schema.import_options import ImportOptions
from ckaudit.errors import UnreadableError, UsageError
from ckaudit.importers import import_runs, import_source, log_search

FIXTURES = Path(__file__).parents[2] / "fixtures"
TRACKERS = FIXTURES / "trackers"
LOG = "step,loss\n1,2.5\n2,2.25\n"


def write(path, text=LOG):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def project(tmp_path):
    """A project with logs of four kinds, a run folder, and data that is none."""
    top = tmp_path / "project"
    write(top / "data" / "train.csv", "id,text\n1,a\n2,b\n")
    write(top / "src" / "model.py", "loss = 1\n")
    write(top / ".cache" / "log.csv")
    write(top / "venv" / "log.csv")
    write(top / "outputs" / "a" / "log.csv")
    shutil.copytree(TRACKERS / "dvclive", top / "outputs" / "dvclive")
    shutil.copytree(TRACKERS / "lightning_logs", top / "outputs" / "lightning_logs")
    state = {"best_metric": None, "global_step": 2, "log_history": [{"loss": 1.5, "step": 2}], "max_steps": 2}
    write(top / "b" / "checkpoint-2" / "trainer_state.json", json.dumps(state))
    write(top / "own" / "scalars.jsonl", '{"step": 3, "train_loss_raw": 0.5}\n')
    return top


LISTED = {
    "b": "Hugging Face trainer_state.json, steps 2 to 2",
    "outputs/a/log.csv": "CSV, steps 1 to 2",
    "outputs/dvclive": "DVCLive folder, steps 1 to 20",
    "outputs/lightning_logs/version_0": "Lightning metrics.csv, steps 2 to 30",
    "outputs/lightning_logs/version_1": "Lightning metrics.csv, steps 2 to 30",
    "own": "run folder of ckaudit",
}


def test_all_that_lies_there_is_listed_with_its_kind_and_steps(project):
    with pytest.raises(UsageError, match="project is no run itself, and 6 lie below it") as caught:
        open_run(project, reads=())
    listed = (f"{number}: {name} ({kind})" for number, (name, kind) in enumerate(LISTED.items(), 1))
    assert f"There is {'; '.join(listed)}." in caught.value.hint


@pytest.mark.parametrize(("number", "name"), list(enumerate(LISTED, 1)))
def test_one_is_taken_by_its_number_or_its_path(project, number, name):
    runs = [open_run(project, reads=(), import_options=ImportOptions(run=wanted)) for wanted in (str(number), name)]
    assert runs[0].notes == runs[1].notes
    assert runs[0].notes[0] == f"found in {name}"
    first, second = (run.scalars["train_loss_raw"] for run in runs)
    assert repr(first.values.tolist()) == repr(second.values.tolist())


def test_an_unknown_one_is_refused(project):
    with pytest.raises(UsageError, match="has no run '7'"):
        open_run(project, reads=(), import_options=ImportOptions(run="7"))


def test_the_only_log_is_read_and_a_note_says_where_it_was(tmp_path):
    write(tmp_path / "x" / "y" / "metrics.csv")
    run = open_run(tmp_path, reads=())
    assert run.notes[0] == "found in x/y/metrics.csv"
    assert run.scalars["train_loss_raw"].values[:, 0].tolist() == [2.5, 2.25]
    assert not is_ours(tmp_path)


def test_import_lists_the_logs_and_needs_no_run_folder(project):
    assert [run.name for run in import_runs(project)] == list(LISTED)[:-1]
    shutil.copytree(project / "own", project / "only" / "own")
    with pytest.raises(UsageError, match="holds run folders of ckaudit, which need no import: own"):
        import_runs(project / "only")


def test_runs_side_by_side_stay_one_source_where_nothing_else_lies_there():
    assert [run.name for run in import_runs(TRACKERS / "lightning_logs")] == ["version_0", "version_1"]


def test_a_run_of_sacred_is_no_run_folder_of_ours_though_its_manifest_has_the_same_name():
    assert not is_ours(TRACKERS / "sacred" / "1")
    assert len(open_run(TRACKERS / "sacred" / "1", reads=()).scalars["train_loss_raw"].steps) == 20


def test_a_folder_with_nothing_that_is_known_says_so(tmp_path):
    write(tmp_path / "notes" / "readme.txt", "hello\n")
    write(tmp_path / "empty.csv", "")
    assert is_ours(tmp_path)
    with pytest.raises(UnreadableError, match="no log is known"):
        import_runs(tmp_path)


def test_links_are_not_followed(tmp_path):
    write(tmp_path / "elsewhere" / "log.csv")
    (tmp_path / "top").mkdir()
    (tmp_path / "top" / "folder").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "top" / "log.csv").symlink_to(tmp_path / "elsewhere" / "log.csv")
    (tmp_path / "top" / "again").symlink_to(tmp_path / "top")
    with pytest.raises(UnreadableError, match="no log is known"):
        import_runs(tmp_path / "top")


def test_a_log_that_is_broken_is_named_beside_those_that_are_read(tmp_path):
    write(tmp_path / "a" / "metrics.json", '{"loss": {"steps": [1, 2')
    write(tmp_path / "b" / "log.csv")
    (run,) = import_runs(tmp_path)
    assert run.name == "b/log.csv"
    assert any(note.startswith("a could not be read: metrics.json") for note in run.notes)
    shutil.rmtree(tmp_path / "b")
    with pytest.raises(UnreadableError, match="cannot be read to its end"):
        import_runs(tmp_path)


def test_one_of_two_files_that_differ_in_their_ends_is_read(tmp_path):
    write(tmp_path / "x" / "progress.csv")
    write(tmp_path / "x" / "progress.json", '{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2.25}\n')
    assert [run.name for run in import_runs(tmp_path)] == ["x/progress.csv"]


def test_columns_that_the_user_names_are_those_of_the_logs_that_have_them(tmp_path):
    write(tmp_path / "x" / "log.csv", "step,foo\n1,2.5\n")
    write(tmp_path / "y" / "log.csv")
    named = {run.name: run.rows for run in import_runs(tmp_path, import_options=ImportOptions(columns={"loss": "foo"}))}
    assert named == {"x/log.csv": [{"step": 1, "train_loss_raw": 2.5}]}


def test_a_tree_without_end_is_searched_so_far_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(log_search, "MAX_ENTRIES", 15)
    for number in range(10):
        write(tmp_path / f"run{number}" / "log.csv")
    runs = import_runs(tmp_path)
    assert 0 < len(runs) < 10
    assert "only 15 files and folders were looked at: name a folder inside it" in runs[0].notes
    monkeypatch.setattr(log_search, "MAX_ENTRIES", 5)
    with pytest.raises(UnreadableError) as caught:
        import_runs(tmp_path)
    assert caught.value.hint == "Only 5 files and folders were looked at: name a folder inside it."


def test_logs_without_end_are_read_so_far(tmp_path, monkeypatch):
    monkeypatch.setattr(log_search, "MAX_READ", 3)
    for number in range(5):
        write(tmp_path / f"run{number}" / "log.csv")
    runs = import_runs(tmp_path)
    assert len(runs) == 3
    assert "only the first 3 logs below the folder were read: name a folder inside it" in runs[0].notes


def test_what_lies_too_deep_is_said(tmp_path):
    write(tmp_path / "log.csv")
    write(tmp_path.joinpath(*"abcdefghi") / "deep.csv")
    (run,) = import_runs(tmp_path)
    assert "folders more than 8 deep were not looked at, as i" in run.notes


@pytest.mark.skipif(os.name == "nt", reason="names of files on Windows hold no such characters")
def test_hostile_names_are_data(tmp_path, capfd):
    for name in ("\x1b[31mred", "<script>"):
        write(tmp_path / "top" / name / "log.csv")
    assert run_cli(["triage", str(tmp_path / "top")]) == 2
    err = capfd.readouterr().err
    assert "\x1b" not in err
    assert "\\x1b[31mred/log.csv" in err


def test_what_lies_beside_event_files_is_named(tmp_path):
    write(tmp_path / "own" / "scalars.jsonl", '{"step": 1, "train_loss_raw": 0.5}\n')
    assert run_cli(["export", str(tmp_path / "own"), "--to", "tensorboard", "-o", str(tmp_path / "tb"), "-q"]) == 0
    shutil.copytree(TRACKERS / "mlruns", tmp_path / "stores" / "mlruns")
    write(tmp_path / "notes.csv")
    (run,) = import_runs(tmp_path)
    assert run.name == "tb"
    assert run.notes[-1] == "beside it lie own (run folder of ckaudit), stores/mlruns (MLflow file store): name one to read it"
    assert not any("beside it" in note for note in import_runs(tmp_path / "tb")[0].notes)
    shutil.copytree(tmp_path / "tb", tmp_path / "tb2")
    with pytest.raises(UsageError, match="holds 2 runs") as caught:
        import_source(tmp_path)
    assert "Beside it lie own (run folder of ckaudit), stores/mlruns (MLflow file store): name one" in caught.value.hint
