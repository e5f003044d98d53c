"""Long logs: blocks proved on arrays give what reading line by line gives, and no log of many short lines is read without end."""

import gzip
import json
import random

import pytest

from ckaudit.contract.io import files, jsonl
from ckaudit.contract.io.folder import list_folder
from ckaudit.run import line_budget
from ckaudit.run.read import read_run
from ckaudit.validate import line_tables, logs, validate
from ckaudit.validate.file_facts import RunFacts
from ckaudit.validate.logs import LogPass, read_logs


def lines_of(seed):
    """Return the lines of a log in which little is wrong, and now and then something."""
    source = random.Random(seed)
    step, session, time, rows = 0, 0, 100.0, []
    for _ in range(400):
        step += source.choice([1] * 9 + [0] * source.choice([0, 3]) or [1])
        if source.random() < 0.01:
            step, session = max(0, step - source.randrange(40)), session + source.choice([0, 1])
        time += source.choice([1.0] * 200 + [-0.5, -5.0])
        row = {"step": step, "time": time, "session": session, "a": source.choice([1.5, 1.5, 1.5, "NaN"])}
        if source.random() < 0.9:
            row["train_loss_raw"] = source.choice([2.5, 2.5, 2.5, None, "Infinity", 2.25] if seed % 2 else [2.5])
        if seed % 3 == 0:
            row["batch"] = "blake2b:0f"
        rows.append(row)
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(files, "BLOCK_BYTES", 1500)
    monkeypatch.setattr(jsonl, "MANY_BYTES", 1000)
    monkeypatch.setattr(jsonl, "FIRST_BYTES", 300)


@pytest.mark.parametrize("seed", range(40))
def test_tables_find_what_lines_find(tmp_path, monkeypatch, small_blocks, seed):
    (tmp_path / "scalars.jsonl").write_text(lines_of(seed))
    folder = list_folder(tmp_path)
    read = {}
    for way, many in (("tables", 0), ("lines", 10**9)):
        monkeypatch.setattr(line_tables, "MANY_BYTES", many)
        facts = RunFacts(folder)
        facts.checkpoints = [Checkpoint(step) for step in range(0, 400, 7)]
        found = read_logs([(tmp_path / "scalars.jsonl", "scalars.jsonl")], facts, lambda: None)
        read[way] = found.findings, found.conflicts, found.notes, found.facts
    assert read["tables"] == read["lines"]


class Checkpoint:
    def __init__(self, step):
        self.step = step


def test_a_long_orderly_log_is_proved_on_arrays(tmp_path, monkeypatch):
    with gzip.open(tmp_path / "scalars.jsonl.gz", "wt", compresslevel=1) as stream:
        stream.writelines(f'{{"step":{step},"loss":{step * 7919 % 1000 / 1000}}}\n' for step in range(400_000))
    taken = []
    monkeypatch.setattr(LogPass, "_in_order", lambda self, rows, steps, sessions: bool(taken.append(len(rows))) or True)
    report = validate([tmp_path])
    assert not report.findings
    assert sum(taken) < 5_000  # those from which the fields are learnt


@pytest.mark.parametrize(
    ("limit", "value", "excess"), [("MAX_LINES", 10_000, "10,000 lines"), ("MAX_VALUES", 30_000, "30,000 values")]
)
def test_lines_beyond_the_budget_are_not_read_and_said(tmp_path, monkeypatch, limit, value, excess):
    monkeypatch.setattr(jsonl, limit, value)
    monkeypatch.setattr(files, "BLOCK_BYTES", 2**16)
    (tmp_path / "scalars.jsonl").write_text("".join(f'{{"step":{step},"train_loss_raw":1.0}}\n' for step in range(60_000)))
    (finding,) = validate([tmp_path]).findings
    run = read_run(tmp_path)
    read = len(run.scalars["train_loss_raw"].steps)
    assert finding.code == "SYN008"
    assert finding.message == f"the scalar logs hold more than {excess}: of this one {read:,} lines were read"
    assert [each.message for each in run.findings] == [finding.message]
    assert read < 20_000


def test_the_logs_of_one_run_share_the_budget(tmp_path, monkeypatch):
    monkeypatch.setattr(jsonl, "MAX_LINES", 100)
    for name, first in (("scalars.jsonl", 0), ("scalars_2.jsonl", 200)):
        (tmp_path / name).write_text("".join(f'{{"step":{first + step},"train_loss_raw":1.0}}\n' for step in range(150)))
    assert read_run(tmp_path).scalars["train_loss_raw"].steps.tolist() == [*range(150)]
    assert [(each.file, each.code) for each in validate([tmp_path]).findings] == [("scalars_2.jsonl", "SYN008")]


def test_a_log_with_the_same_fault_everywhere_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "MAX_FAULTY", 50)
    monkeypatch.setattr(files, "BLOCK_BYTES", 2**12)
    (tmp_path / "scalars.jsonl").write_text("".join(f'{{"step":{20_000 - step},"a":1.0}}\n' for step in range(20_000)))
    found = [each.message for each in validate([tmp_path]).findings if each.code == "RUN007" and each.line is None]
    assert [message.partition(" ")[2] for message in found] == ["more places, as those above; the rest of the file was not read"]
    assert int(found[0].split()[0].replace(",", "")) < 400


def test_sessions_and_names_without_end_do_not_fill_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(line_budget, "MAX_SESSIONS", 3)
    monkeypatch.setattr(line_budget, "MAX_NAMES", 5)
    rows = [{"step": step, "session": step, f"a{step}": 1, f"b{step}": 1} for step in range(10)]
    (tmp_path / "scalars.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = [each.message for each in validate([tmp_path]).findings if each.code == "SYN008"]
    assert said == ["holds more than 3 sessions; 7 lines of later ones were not read (and 1 more)"]


def test_blocks_of_few_lines_are_joined_and_nothing_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK_BYTES", 3000)
    rows = [{"step": step, **{f"a{name}": step + name / 8 for name in range(60)}} for step in range(100)]
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (tmp_path / "scalars.jsonl").write_bytes(text)
    blocks = [*jsonl.read_lines(tmp_path / "scalars.jsonl", "s")]
    assert [len(block.rows) for block in blocks][:1] >= [64]
    assert [row for block in blocks for row in block.rows] == rows
    assert [number for block in blocks for number in block.numbers] == [*range(1, 101)]
    packed = gzip.compress(text)
    (tmp_path / "scalars.jsonl.gz").write_bytes(packed[: len(packed) * 3 // 4])
    torn = [*jsonl.read_lines(tmp_path / "scalars.jsonl.gz", "s")]
    assert sum(len(block.rows) for block in torn) > 10
    assert [finding.code for block in torn for finding in block.findings] == ["SYN005"]
