import errno
import json
import os

import numpy as np
import pytest
import torch

from ckaudit.recorder.files import scalar_log as scalars
from ckaudit.recorder.files.scalar_log import ScalarLogWriter, cut_torn_tail, last_value, number, plain_value


def append(log, step, time, values):
    log.write(log.line(step, time, values))


def test_lines_are_appended_and_the_first_of_a_session_names_the_contract(tmp_path):
    path = tmp_path / "scalars.jsonl"
    for session in (0, 1):
        log = ScalarLogWriter(path, session)
        append(log, 1, 12.3456, {"train_loss_raw": 0.5, "slice_val_loss/regular": float("nan")})
        append(log, 2, 13.0, {"note": "a\nb"})
        log.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    head = {"schema_version": "ck.scalars.v1", "step": 1, "time": 12.346, "session": 0}
    assert lines[0] == head | {"train_loss_raw": 0.5, "slice_val_loss/regular": "NaN"}
    assert ["schema_version" in line for line in lines] == [True, False, True, False]
    assert [line["session"] for line in lines] == [0, 0, 1, 1]


def test_each_line_is_one_write(tmp_path, monkeypatch):
    written = []
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: (written.append(data), write(descriptor, data))[1])
    log = ScalarLogWriter(tmp_path / "scalars.jsonl", 0)
    append(log, 1, 0.0, {"a": 1})
    append(log, 2, 0.0, {"a": 2})
    assert [data.endswith(b"}\n") for data in written] == [True, True]


def test_a_full_disk_leaves_whole_lines_only(tmp_path, monkeypatch):
    path = tmp_path / "scalars.jsonl"
    log = ScalarLogWriter(path, 0)
    append(log, 1, 0.0, {})
    whole, write = path.read_bytes(), os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    with pytest.raises(OSError, match="7 of"):
        append(log, 2, 0.0, {})
    assert path.read_bytes() == whole
    monkeypatch.setattr(os, "write", write)
    append(log, 3, 0.0, {})
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 3]


def test_lines_of_which_a_part_was_written_and_could_not_be_cut_off_come_once(tmp_path, monkeypatch):
    path, log, write = tmp_path / "scalars.jsonl", ScalarLogWriter(tmp_path / "scalars.jsonl", 0), os.write
    append(log, 1, 0.0, {})
    two = log.line(2, 0.0, {}) + log.line(3, 0.0, {})
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:-5]))
        patch.setattr(os, "ftruncate", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
        with pytest.raises(OSError, match="broken"):
            log.write(two)
    log.write(two)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2, 3]


def test_a_folder_that_comes_back_is_written_to_again(tmp_path):
    log = ScalarLogWriter(tmp_path / "later" / "scalars.jsonl", 0)
    line = log.line(1, 0.0, {})
    with pytest.raises(OSError) as caught:
        log.write(line)
    assert caught.value.errno == errno.ENOENT
    (tmp_path / "later").mkdir()
    log.write(line)
    assert json.loads((tmp_path / "later" / "scalars.jsonl").read_text())["schema_version"] == "ck.scalars.v1"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (torch.tensor(0.1), 0.1),
        (torch.tensor([2.5], requires_grad=True), 2.5),
        (torch.tensor(0.1, dtype=torch.float64), 0.1),
        (np.float32(0.1), 0.1),
        (np.int64(3), 3),
        (123456789.123, 123456789.123),
        (10**12, 10**12),
        ("text", "text"),
        (True, True),
        (None, None),
    ],
)
def test_scalars_of_any_library_are_taken(value, expected):
    assert plain_value(value) == expected


@pytest.mark.parametrize("value", [torch.ones(2), [1.0], {"a": 1}])
def test_what_is_no_scalar_is_refused(value):
    with pytest.raises((TypeError, RuntimeError)):
        plain_value(value)


def test_a_loss_is_a_number_or_nothing():
    assert number(torch.tensor(3)) == 3.0
    assert number(None) is None


@pytest.mark.parametrize("block", [3, 64, 2**16])
@pytest.mark.parametrize(
    ("before", "after"),
    [(b"", b""), (b"{}\n", b"{}\n"), (b'{"a":1}\n{"b"', b'{"a":1}\n'), (b'{"a":1', b""), (b"\n\nxyz", b"\n\n")],
)
def test_a_torn_tail_is_cut_at_the_last_newline(tmp_path, monkeypatch, before, after, block):
    monkeypatch.setattr(scalars, "BLOCK", block)
    path = tmp_path / "scalars.jsonl"
    path.write_bytes(before)
    assert cut_torn_tail(path) == len(before) - len(after)
    assert path.read_bytes() == after


def test_a_missing_file_has_no_tail(tmp_path):
    assert cut_torn_tail(tmp_path / "none") == 0
    assert last_value(tmp_path / "none", "a", until=9) is None


@pytest.mark.parametrize("block", [5, 64, 2**16])
def test_the_latest_value_at_or_before_a_step_is_found_from_the_end(tmp_path, monkeypatch, block):
    monkeypatch.setattr(scalars, "BLOCK", block)
    path = tmp_path / "scalars.jsonl"
    rows = [{"step": step, "steps_seen": step * 10} for step in range(1, 40)]
    rows += [{"step": step, "steps_seen": step * 100} for step in range(30, 50)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "not json\n")
    assert last_value(path, "steps_seen", until=35) == 3500
    assert last_value(path, "steps_seen", until=29) == 290
    assert last_value(path, "steps_seen", until=0) is None
    assert last_value(path, "other", until=99) is None
