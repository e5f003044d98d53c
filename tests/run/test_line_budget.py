"""What one line, or one name, may cost is bounded, whatever the file weighs."""

import json
import tracemalloc

import pytest

from ckaudit.run import line_budget
from ckaudit.run.read import read_run


def written(folder, rows):
    (folder / "scalars.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_run(folder)


def test_names_beyond_the_budget_are_left_out_and_said(tmp_path, monkeypatch):
    monkeypatch.setattr(line_budget, "MAX_NAMES", 10)
    run = written(tmp_path, [{"step": step, "train_loss_raw": 1.0, **{f"a{step}_{n}": 1 for n in range(4)}} for step in range(5)])
    assert len(run.scalars) == 10
    assert run.scalars["train_loss_raw"].steps.tolist() == [0, 1, 2, 3, 4]
    assert [finding.message for finding in run.findings] == [
        "names more than 10 different scalars; 11 values of later names were not read"
    ]


def test_sessions_beyond_the_budget_are_left_out_and_said(tmp_path, monkeypatch):
    monkeypatch.setattr(line_budget, "MAX_SESSIONS", 3)
    run = written(tmp_path, [{"step": step, "session": step, "train_loss_raw": 1.0} for step in range(10)])
    assert run.scalars["train_loss_raw"].steps.tolist() == [0, 1, 2]
    assert "7 lines of later ones were not read" in run.findings[0].message


def test_labels_that_each_stand_at_one_step_do_not_make_a_table_of_all_steps(tmp_path):
    tracemalloc.start()
    run = written(tmp_path, [{"step": step, f"slice_val_loss/{step}": 1.0} for step in range(8000)])
    assert tracemalloc.get_traced_memory()[1] < 300 * 2**20
    tracemalloc.stop()
    assert len(run.scalars["slice_val_loss"].labels) == line_budget.MAX_CELLS // 8000
    assert any("slice_val_loss has 8,000 labels at 8,000 steps" in note for note in run.notes)


@pytest.mark.parametrize(("labels", "steps"), [(1000, 40), (3, 5000)])
def test_a_table_that_is_full_is_never_cut(tmp_path, monkeypatch, labels, steps):
    monkeypatch.setattr(line_budget, "MAX_CELLS", 100)
    run = written(tmp_path, [{"step": step, **{f"slice_val_loss/{n}": 1.0 for n in range(labels)}} for step in range(steps)])
    assert run.scalars["slice_val_loss"].values.shape == (steps, labels)
    assert not run.notes
