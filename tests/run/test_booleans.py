"""A JSON boolean under the name of a number is reported and left out; for facts that are so or not it is 1 or 0."""

import json

import numpy as np
import pytest

from ckaudit import triage
from ckaudit.contract.io import files, jsonl
from ckaudit.recorder.files.scalar_log import number
from ckaudit.run.read import read_run
from ckaudit.validate import validate


def written(folder, count=60, **values):
    rows = [{"step": step, "train_loss_raw": 2 - step / 100, **values} for step in range(1, count)]
    (folder / "scalars.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_a_boolean_gradient_norm_is_no_gradient_of_zero(tmp_path):
    assert not triage(written(tmp_path, grad_global_norm=False)).findings
    assert [note for note in read_run(tmp_path).notes if "grad_global_norm" in note] == [
        "grad_global_norm holds no number but a word at 59 steps, first 'false' at step 1; they count as not recorded"
    ]


def test_validate_names_file_and_line(tmp_path):
    found = [finding for finding in validate([written(tmp_path, 3, grad_global_norm=True)]).findings if finding.code == "RUN026"]
    assert [(finding.file, finding.line, finding.message) for finding in found] == [
        ("scalars.jsonl", 1, "grad_global_norm in line 1 is true, not a number"),
        ("scalars.jsonl", 2, "grad_global_norm in line 2 is true, not a number"),
    ]


def test_words_under_every_name_of_a_number_are_reported_and_others_are_not(tmp_path):
    words = {"my_flag": True, "eval_artifact_hash": "blake2b:0f", "gpu_util": "NaN", "opt_state_finite": False}
    written(tmp_path, 2, mfu=False, **words)
    assert {finding.where for finding in validate([tmp_path]).findings if finding.code == "RUN026"} == {"mfu"}
    written(tmp_path, 2, val_ppl="x", **words)
    assert {finding.where for finding in validate([tmp_path]).findings if finding.code == "RUN026"} == {"val_ppl"}
    run = read_run(written(tmp_path, 3, my_flag=True, opt_state_finite=False))
    assert run.texts["my_flag"].values == ("true", "true")
    assert run.scalars["opt_state_finite"].values.tolist() == [[0.0], [0.0]]


@pytest.mark.parametrize("values", [{"grad_global_norm": True}, {"my_flag": False}, {"opt_state_finite": True}])
def test_a_log_read_by_columns_gives_what_lines_give(tmp_path, monkeypatch, values):
    monkeypatch.setattr(files, "BLOCK_BYTES", 2000)
    monkeypatch.setattr(jsonl, "MANY_BYTES", 1000)
    monkeypatch.setattr(jsonl, "FIRST_BYTES", 300)
    by_columns = read_run(written(tmp_path, 400, **values))
    monkeypatch.setattr(files, "BLOCK_BYTES", 10**7)
    monkeypatch.setattr(jsonl, "MANY_BYTES", 10**9)
    by_lines = read_run(tmp_path)
    assert by_columns.texts == by_lines.texts
    assert by_columns.notes == by_lines.notes
    assert by_columns.scalars.keys() == by_lines.scalars.keys()
    for name, series in by_lines.scalars.items():
        np.testing.assert_array_equal(by_columns.scalars[name].values, series.values)


def test_the_recorder_takes_no_boolean_for_a_number():
    with pytest.raises(TypeError, match="a boolean is no number"):
        number(np.bool_(True))
