"""An imported run as a run folder: the same numbers, the same verdict, nothing half written, nothing of others touched."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from ckaudit.audit import triage
from ckaudit.contract.io.fast_jsonl import LineTable
from ckaudit.contract.schema.import_options import ImportOptions
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.errors import UsageError
from ckaudit.importers import import_runs, import_source, run_named
from ckaudit.importers.folder import names_of_folders, write_run
from ckaudit.importers.importer import Imported
from ckaudit.run.builder import run_of_table
from ckaudit.run.read import read_run
from ckaudit.validate import validate

REAL = Path(__file__).parents[2] / "fixtures" / "real"
SAMPLES = (
    "hf_trainer/whisper_flemish_15k/trainer_state.json",
    "algoperf/criteo_genadam_inf_step73/measurements.csv",
    "algoperf/conformer_nadamw_seq_restart_80k_160k/measurements.csv",
    "multipowerlaw/csv_400/wsdcon_3.csv",
    "olmo/peteish1.csv",
)


EVERY = [each["path"] for each in json.loads((REAL / "INDEX.json").read_text())]


@pytest.mark.parametrize("sample", EVERY)
def test_every_sample_becomes_run_folders_that_keep_the_contract(sample, tmp_path):
    runs = import_runs(REAL / sample)
    for run, name in zip(runs, names_of_folders(runs), strict=True):
        write_run(run, tmp_path / name)
        report = validate([tmp_path / name])
        assert all(finding.severity == "note" for finding in report.findings)
        assert sum(check.outcome == "passed" for check in report.checks) > 20
        again = read_run(tmp_path / name)
        assert again.last_step == max([*run.table.steps.tolist(), *(each["step"] for each in run.documents)])


def one(**parts):
    table = LineTable(
        np.array([1, 2, 2]),
        np.array([0, 0, 1]),
        ("train_loss_raw", "val_loss"),
        np.array([[2.0, math.nan, math.inf], [math.nan, 1.5, math.nan]]),
        np.array([[True, True, True], [False, True, False]]),
        {"source": ["books", None, "web"]},
    )
    return Imported(table, Manifest(schema_version="ck.run.v1"), (), "a log", **parts)


def same(one, other):
    assert set(one) == set(other)
    for name, series in one.items():
        assert series.labels == other[name].labels
        np.testing.assert_array_equal(series.steps, other[name].steps)
        np.testing.assert_array_equal(series.recorded, other[name].recorded)
        np.testing.assert_array_equal(series.values, other[name].values)


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_written_log_is_the_log_that_was_read(tmp_path, sample):
    imported = import_source(REAL / sample)
    write_run(imported, tmp_path / "run")
    assert not validate([tmp_path / "run"]).findings
    direct, written = run_of_table("x", imported.table, reads=()), read_run(tmp_path / "run", reads=())
    same(direct.scalars, written.scalars)
    assert written.notes == imported.notes
    assert {name: set(branch) for name, branch in direct.branches.items()} == {
        name: set(branch) for name, branch in written.branches.items()
    }


def test_the_verdict_is_the_same(tmp_path):
    sample = REAL / "hf_trainer/whisper_small_hi_overfit/trainer_state.json"
    write_run(import_source(sample), tmp_path / "run")
    one, other = triage(sample), triage(tmp_path / "run")
    assert [(each.code, each.message, each.first_step) for each in one.findings] == [
        (each.code, each.message, each.first_step) for each in other.findings
    ]
    assert one.findings


def test_lines_say_what_was_recorded_and_nothing_else(tmp_path):
    write_run(one(), tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run/scalars.jsonl").read_text().splitlines()]
    assert lines == [
        {"schema_version": "ck.scalars.v1", "step": 1, "session": 0, "train_loss_raw": 2.0, "source": "books"},
        {"step": 2, "session": 0, "train_loss_raw": "NaN", "val_loss": 1.5},
        {"step": 2, "session": 1, "train_loss_raw": "Infinity", "source": "web"},
    ]


def test_statistics_of_layers_become_checkpoints(tmp_path):
    documents = [{"step": step, "gradients": {"layer.0": {"norm": 0.5 * step}, "layer.1": {"norm": 2.0}}} for step in (10, 20)]
    write_run(one(documents=documents), tmp_path / "run")
    assert not validate([tmp_path / "run"]).findings
    norms = read_run(tmp_path / "run").series("gradients", "norm")
    assert (norms.steps.tolist(), norms.labels, norms.values.tolist()) == (
        [10, 20],
        ("layer.0", "layer.1"),
        [[5.0, 2.0], [10.0, 2.0]],
    )
    direct = run_of_table("x", one().table, documents=documents).series("gradients", "norm")
    np.testing.assert_array_equal(direct.values, norms.values)


def test_a_run_that_stands_there_is_only_replaced_where_that_is_allowed(tmp_path):
    folder = tmp_path / "run"
    write_run(one(documents=[{"step": 5, "loss": 1.0}]), folder)
    (folder / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds a run already"):
        write_run(one(), folder)
    write_run(one(documents=[{"step": 7, "loss": 1.0}]), folder, force=True)
    names = {"mine.txt", "run.json", "scalars.jsonl", "analysis_checkpoint_step_00000007.json"}
    assert {each.name for each in folder.iterdir()} == names
    assert [each.name for each in tmp_path.iterdir()] == ["run"]


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(UsageError, match="is no folder"):
        write_run(one(), tmp_path / "run")


def test_nothing_is_left_half_written(tmp_path):
    with pytest.raises(NotImplementedError):
        write_run(one(documents=[{"step": 5, "loss": object()}]), tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_folders_are_named_after_runs_safely_and_apart():
    names = ["../../etc", "a b", "a_b", "", "\x1b[31mred", "x" * 300, "A_B", "gru/v1.2"]
    found = names_of_folders([one(name=name) for name in names])
    assert found == ["etc", "a_b", "a_b-3", "run-4", "31mred", "x" * 80, "A_B-7", "gru_v1.2"]


def test_one_of_several_runs_must_be_named():
    runs = [one(name="first"), one(name="second")]
    with pytest.raises(UsageError, match="holds 2 runs") as raised:
        run_named(runs, "", Path("mlruns"))
    assert "1: first (steps 1 to 2); 2: second (steps 1 to 2)" in raised.value.hint
    assert run_named(runs, "2", Path("x")) is runs[1]
    assert run_named(runs, "first", Path("x")) is runs[0]
    with pytest.raises(UsageError, match="has no run 'third'"):
        run_named(runs, "third", Path("x"))


def test_a_format_may_be_named_and_another_may_not(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("step,loss\n1,2\n")
    assert import_source(path, import_options=ImportOptions(format="CSVfile")).rows == [{"step": 1, "train_loss_raw": 2.0}]
    with pytest.raises(UsageError, match="no format is called 'xml'"):
        import_source(path, import_options=ImportOptions(format="xml"))
