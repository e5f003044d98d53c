"""Blocks read as tables and lines read one by one are the same run, whatever stands in the log."""

import gzip
import json
import random
import tracemalloc

import numpy as np
import pytest
import zstandard

from ckaudit.contract.io import files, jsonl
from ckaudit.contract.io.fast_jsonl import Tabulator
from ckaudit.run import read as read_module
from ckaudit.run.read import read_run
from tests.metrics.samples import NAN, cells, close

PACKERS = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}
NUMBERS = ["train_loss_raw", "grad_global_norm", "val/a", "val/b", "val", "tokens", "flag"]
ODD_LINES = [
    '{"step": 5, "train_loss_raw": 1.0, "train_loss_raw": 2.0}',
    '{"step": 6, "lo',
    "",
    "hello",
    "[1]",
    '{"a": 1}',
    "{}",
    '{"step": 7, "train_loss_raw": {"a": 1}}',
    '{"step": 7}{"step": 8}',
    '{"step": 9, "train_loss_raw": 1e999}',
    '{"step": 9, "tokens": 123456789012345678901234567890}',
    '{"step": 3.0, "tokens": 1}',
    '{"step": 3, "time": null}',
    '{"step": 4, "time": "NaN", "session": null}',
    '{"step": 2, "time": -1}',
    '{"step": 4, "tokens": "many"}',
    '{"step": 9, "train_loss_raw": true}',
    '{"step": 9, "my_flag": false}',
    '{"step": 9, "input_hash": 5.0}',
    '{"step": 9, "input_hash": "NaN"}',
    '{"step": 9, "input_hash": "a\\": \\"b: c"}',
    '{"step": 3, "train\\u005floss_raw": 7.5}',
    '{"step": -1}',
    '{"step": 2, "schema_version": "ck.scalars.v1", "time": 1}',
    '{"step": 9, "train_loss_raw": -0.0, "val/late": 2}',
    '{"step": 9, "input_hash": "\\ud800"}',
    '{"step": true}',
    '{"step": 11, "train_loss_raw": 1, "tokens": ' + "9" * 400 + "}",
    '{"step": 12, "a b:c": 1}',
    '  {"step":13,"tokens" : 4}  ',
]


def line(rng, step, session, style, *, odd):
    """Write one line of a log as a program would that knows no mercy."""
    if rng.random() < odd:
        return rng.choice(ODD_LINES)
    row = {"step": step, "time": 100.0 + step, "session": session}
    if session == 0 and rng.random() < 0.5:
        del row["session"]
    for name in NUMBERS:
        roll = rng.random()
        if roll < 0.9:
            row[name] = rng.random() if roll < 0.8 else rng.choice([NAN, "NaN", "Infinity", "-Infinity", None, 3, 1e-300])
    row["input_hash"] = rng.choice(["ab", "ü", "", None, "a:b"])
    if rng.random() < 0.05:
        del row["input_hash"]
    text = json.dumps(row, **style)
    return text if rng.random() < 0.3 else text.replace(" NaN", ' "NaN"').replace(":NaN", ':"NaN"')


def random_log(seed, lines=400):
    rng = random.Random(seed)
    style = {"separators": (",", ":") if seed % 2 else (", ", ": "), "ensure_ascii": bool(seed % 3)}
    step, session, made = 0, 0, []
    for _ in range(lines):
        step += rng.choice([0, 1, 1, 1, 2])
        if rng.random() < 0.01:
            session, step = session + 1, max(step - rng.randrange(40), 0)
        made.append(line(rng, step, session, style, odd=0.01 * (seed % 4)))
    text = ("\ufeff" if seed % 7 == 0 else "") + "\n".join(made) + rng.choice(["\n", '\n{"step": 9999, "tr', "", '\n{"step":1}'])
    return text.encode()


def read(folder, monkeypatch, *, fast):
    """Read a folder in small blocks; return the run and how many blocks were tables."""
    taken, plain = [], Tabulator.read

    def spied(self, body):
        table = plain(self, body) if fast else None
        taken.append(table is not None)
        return table

    with monkeypatch.context() as patch:
        patch.setattr(Tabulator, "read", spied)
        patch.setattr(files, "BLOCK_BYTES", 2_000)
        patch.setattr(jsonl, "MIN_LINES", 1)
        return read_run(folder), sum(taken)


def assert_same_scalars(found, expected):
    assert list(found) == list(expected)
    for name, series in expected.items():
        assert (found[name].labels, found[name].unit, found[name].name) == (series.labels, series.unit, series.name)
        assert np.array_equal(found[name].steps, series.steps)
        assert np.array_equal(found[name].values, series.values, equal_nan=True)
        assert np.array_equal(found[name].recorded, series.recorded)


@pytest.mark.parametrize("seed", range(16))
def test_both_ways_give_the_same_run(tmp_path, monkeypatch, seed):
    for part, suffix in enumerate(["", ".gz", ".zst"][: 1 + seed % 3]):
        (tmp_path / f"scalars.{part}.jsonl{suffix}").write_bytes(PACKERS[suffix](random_log(seed + 100 * part)))
    (found, tables), (expected, none) = (read(tmp_path, monkeypatch, fast=fast) for fast in (True, False))
    assert tables > 3 or seed % 4
    assert none == 0
    assert_same_scalars(found.scalars, expected.scalars)
    assert list(found.texts.items()) == list(expected.texts.items())
    assert list(found.branches) == list(expected.branches)
    for session, branch in expected.branches.items():
        assert_same_scalars(found.branches[session], branch)
    assert (found.findings, found.notes, found.last_step) == (expected.findings, expected.notes, expected.last_step)


@pytest.mark.parametrize("odd", ODD_LINES)
def test_an_odd_line_among_good_ones_is_read_as_before(tmp_path, monkeypatch, odd):
    good = [
        json.dumps({"step": step, "time": 1.0, "train_loss_raw": 0.5, "tokens": step, "input_hash": "a"}) for step in range(200)
    ]
    (tmp_path / "scalars.jsonl").write_text("\n".join([*good[:150], odd, *good[150:]]) + "\n")
    (found, tables), (expected, _) = (read(tmp_path, monkeypatch, fast=fast) for fast in (True, False))
    assert tables > 3
    assert_same_scalars(found.scalars, expected.scalars)
    assert (found.findings, found.notes, dict(found.texts)) == (expected.findings, expected.notes, dict(expected.texts))


def test_against_pythons_own_json(tmp_path, monkeypatch):
    rng = random.Random(0)
    rows = [
        {"step": step, "a": rng.random(), "b/x": rng.choice([1.5, "NaN", None]), "opt_state_finite": step % 2 == 0}
        for step in range(500)
    ]
    for row in rows[::7]:
        del row["a"]
    (tmp_path / "scalars.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run, tables = read(tmp_path, monkeypatch, fast=True)
    assert tables > 5
    for name, family, label in (("a", "a", "a"), ("b/x", "b", "x"), ("opt_state_finite",) * 3):
        expected = {(row["step"], label): float(row[name]) for row in rows if row.get(name) is not None}
        assert close(cells(run.scalar(family)), expected, 0)


def test_columns_of_one_log_share_their_steps(tmp_path, monkeypatch):
    (tmp_path / "scalars.jsonl").write_text("".join(f'{{"step":{step},"a":1.0,"b":2}}\n' for step in range(1_000)))
    run, _ = read(tmp_path, monkeypatch, fast=True)
    assert run.scalar("a").steps is run.scalar("b").steps


def test_a_new_session_may_begin_with_an_empty_text(tmp_path, monkeypatch):
    rows = [{"step": step, "session": step // 500, "a": 1.0, "hash": "x" if step < 500 else ""} for step in range(1_000)]
    (tmp_path / "scalars.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (found, tables), (expected, _) = (read(tmp_path, monkeypatch, fast=fast) for fast in (True, False))
    assert tables > 10
    assert dict(found.texts) == dict(expected.texts)


def test_lines_that_hold_few_of_many_fields_are_read_one_by_one(tmp_path, monkeypatch):
    (tmp_path / "scalars.jsonl").write_text("".join(f'{{"step":{step},"t{step % 97}":1.0}}\n' for step in range(1_000)))
    run, tables = read(tmp_path, monkeypatch, fast=True)
    assert (tables, len(run.scalars)) == (0, 97)


def test_memory_is_a_few_times_that_of_the_columns(tmp_path):
    names = [f"n{index}" for index in range(20)]
    text = "".join(json.dumps({"step": step} | dict.fromkeys(names, step / 7)) + "\n" for step in range(50_000))
    (tmp_path / "scalars.jsonl").write_text(text)
    tracemalloc.start()
    run = read_run(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    columns = 50_000 * 8 * len(names)
    assert len(run.scalar("n7").steps) == 50_000
    assert peak < 2.5 * columns + 60e6


def test_progress_is_told_for_every_block_of_a_long_log(tmp_path, monkeypatch):
    (tmp_path / "scalars.jsonl").write_text("".join(f'{{"step":{step},"a":1.0}}\n' for step in range(1_000)))
    (tmp_path / "scalars.1.jsonl.gz").write_bytes(gzip.compress(b'{"step":2000,"a":1.0}\n' * 500))
    monkeypatch.setattr(files, "BLOCK_BYTES", 2_000)
    monkeypatch.setattr(read_module, "BLOCK_BYTES", 2_000)
    told = []
    read_run(tmp_path, progress=lambda done, total: told.append((done, total)))
    dones, totals = zip(*told, strict=True)
    assert len(set(totals)) == 1
    assert sorted(dones) == list(dones)
    assert dones[-1] == totals[0] == len(set(dones)) > 8
