"""The line or checkpoint at which a finding begins, in run folders whose content is known."""

import json

import zstandard

from ckaudit.audit.evidence_files import evidence_files
from ckaudit.contract.schema.report import Finding


def found(code, step, where=None, **fields):
    return Finding(code=code, name="x", severity="sev1", message="x", where=where, first_step=step, **fields)


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def place(folder, finding):
    (one,) = evidence_files(folder, [finding]).values() or [None]
    return one


def test_a_finding_of_the_loss_is_at_the_line_that_holds_the_loss(tmp_path):
    rows = [{"step": step, "train_loss_raw": 3.0} for step in range(1, 6)]
    write(tmp_path / "scalars.jsonl", [*rows, {"step": 3, "val_loss": 2.0}])
    assert place(tmp_path, found("LOSS001", 3, "loss")) == ("scalars.jsonl", 3)


def test_a_step_that_was_taken_again_is_at_its_last_line(tmp_path):
    rows = [{"step": step, "session": session, "train_loss_raw": 3.0} for session, step in ((0, 1), (0, 2), (1, 2), (1, 3))]
    write(tmp_path / "scalars.jsonl", rows)
    assert place(tmp_path, found("LOSS001", 2, "loss")) == ("scalars.jsonl", 3)


def test_a_tensor_is_in_the_checkpoint_of_the_step_and_the_whole_gradient_in_the_line(tmp_path):
    write(tmp_path / "scalars.jsonl", [{"step": 10, "train_loss_raw": 3.0, "grad_global_norm": 9.0}])
    name = "analysis_checkpoint_step_00000010.json"
    (tmp_path / name).write_text("{}")
    (tmp_path / "analysis_checkpoint_step_00000010.rank001.json").write_text("{}")
    (tmp_path / "analysis_checkpoint_step_00000010.session001.json").write_text("{}")
    assert place(tmp_path, found("GRAD003", 10, "blocks.0.attn.q.weight")) == (name, 1)
    assert place(tmp_path, found("GRAD002", 10, "grad_global_norm")) == ("scalars.jsonl", 1)


def test_where_the_step_has_no_checkpoint_its_line_is_named(tmp_path):
    write(tmp_path / "scalars.jsonl", [{"step": 9, "train_loss_raw": 3.0}, {"step": 10, "train_loss_raw": 3.0}])
    assert place(tmp_path, found("GRAD003", 10, "blocks.0.attn.q.weight")) == ("scalars.jsonl", 2)


def test_a_packed_log_is_named_with_the_line_that_it_has_when_unpacked(tmp_path):
    lines = "".join(json.dumps({"step": step, "train_loss_raw": 3.0}) + "\n" for step in range(1, 6))
    (tmp_path / "scalars.jsonl.zst").write_bytes(zstandard.compress(lines.encode()))
    assert place(tmp_path, found("LOSS001", 4, "loss")) == ("scalars.jsonl.zst", 4)


def test_what_nothing_on_disk_shows_alone_has_no_place(tmp_path):
    write(tmp_path / "scalars.jsonl", [{"step": 1, "train_loss_raw": 3.0}])
    assert place(tmp_path, found("LOSS001", 7, "loss")) is None
    assert place(tmp_path, found("SES001", None)) is None
    assert place(tmp_path, found("SYN005", 1, file="scalars.jsonl")) is None
    assert place(tmp_path / "gone", found("LOSS001", 1, "loss")) is None
