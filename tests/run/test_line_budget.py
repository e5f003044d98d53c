"""What one line, or one name, may cost is bounded, whatever the file weighs."""

import json
import tracemalloc

import pytest

from ckaudit.contract.io.folder import RunFiles
from ckaudit.run import line_budget
from ckaudit.run.read import read_run
from ckaudit.run.tensors import MAX_BLOCKS, TensorTable
from ckaudit.watch.growing_run import AppendedLines, BoundedHistory


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


def checkpoints(folder, names_of, count):
    for step in range(count):
        entries = {name: {"norm": 1.0} for name in names_of(step)}
        document = {"schema_version": "ck.analysis.v1", "step": step, "loss": 1.0, "gradients": entries}
        (folder / f"analysis_checkpoint_step_{step:08d}.json").write_text(json.dumps(document))
    return read_run(folder)


def test_ever_new_tensors_in_checkpoints_are_left_out_and_said(tmp_path, monkeypatch):
    monkeypatch.setattr(line_budget, "MAX_TENSORS", 10)
    run = checkpoints(tmp_path, lambda step: [f"t{step}_{number}" for number in range(3)], 8)
    norms = run.sections["gradients.*.norm"]
    assert norms.values.shape == (8, 12)  # four times three
    assert int(norms.recorded.sum()) == 12
    assert run.notes == (
        (
            "checkpoints name ever new tensors in gradients: of the first 12 everything was read, "
            "and 12 entries of later ones were left out"
        ),
    )


def test_tensors_that_take_turns_are_all_read(tmp_path, monkeypatch):
    monkeypatch.setattr(line_budget, "MAX_TENSORS", 40)
    run = checkpoints(tmp_path, lambda step: [f"t{(step * 4 + number) % 40}" for number in range(4)], 20)
    assert len(run.sections["gradients.*.norm"].labels) == 40
    assert int(run.sections["gradients.*.norm"].recorded.sum()) == 80
    assert not run.notes


def test_a_watch_says_what_it_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(line_budget, "MAX_NAMES", 10)
    lines = [{"step": step, **{f"a{step}_{n}": 1 for n in range(4)}} for step in range(5)]
    history = BoundedHistory(RunFiles(tmp_path), frozenset())
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    told = history.take_piece(AppendedLines(tmp_path / "scalars.jsonl", 1, data)).findings
    assert [finding.message for finding in told] == [
        "names more than 10 different scalars; 10 values of later names were not read"
    ]


def test_more_blocks_than_any_model_has_are_none():
    table = TensorTable({})
    assert set(table.blocks([f"h.{number}.up.weight" for number in range(MAX_BLOCKS)])) == {f"h.{n}" for n in range(MAX_BLOCKS)}
    assert set(table.blocks([f"h.{number}.up.weight" for number in range(MAX_BLOCKS + 1)])) == {None}
