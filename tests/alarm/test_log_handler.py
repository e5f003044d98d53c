"""A handler of logging: the numbers of any record come into the run as they were logged, and where asked it really raises."""

import io
import json
import logging
import math
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

import ckaudit
from ckaudit.recorder import Writer

ROOT = Path(__file__).parents[2]


@pytest.fixture
def log():
    """Return a logger of its own, whose handlers are closed at the end."""
    log = logging.getLogger("a.training")
    log.setLevel(logging.INFO)
    log.propagate = False
    yield log
    for handler in log.handlers.copy():
        log.removeHandler(handler)
        handler.close()


def attached(log, run, **options):
    handler = ckaudit.LogHandler(run, **options)
    log.addHandler(handler)
    return handler


def rows(run):
    """Return the lines of a run by step, without what every line has."""
    text = (run / "scalars.jsonl").read_text()
    own = ("schema_version", "step", "time", "session", "steps_seen")
    return {row["step"]: {key: row[key] for key in row if key not in own} for row in map(json.loads, text.splitlines())}


@pytest.mark.parametrize(
    ("message", "values"),
    [
        ("step 100 loss 2.3", {"train_loss_raw": 2.3}),
        ("step 100/5000 | loss 2.3456 | lr 3.00e-04 | grad_norm 1.25", {"train_loss_raw": 2.3456, "learning_rate": 3e-4}),
        ("step=100 loss=2.3 lr=1e-3", {"train_loss_raw": 2.3, "learning_rate": 1e-3}),
        ("[step 100] loss: 2.3, val_loss: 2.5", {"train_loss_raw": 2.3, "val_loss": 2.5}),
        ("Epoch 3 Step 1,00 Loss 2.3", {}),
        ("train step 100: train loss 2.3", {"train_loss_raw": 2.3}),
        ("iteration 100 loss nan lr 1e-3", {"train_loss_raw": "NaN", "learning_rate": 1e-3}),
        ("step 100 loss -inf", {"train_loss_raw": "-Infinity"}),
        ("step 100 loss 2.3 time 120ms", {"train_loss_raw": 2.3}),
        ("global_step: 100, something: 7, loss: 2.3", {"train_loss_raw": 2.3}),
        ("step 100: saved run/model-100.pt", {}),
        ("loading 7 shards", {}),
        ("step nan loss 2.3", {}),
    ],
)
def test_a_message_is_read(log, tmp_path, message, values):
    attached(log, tmp_path)
    log.info("step 99 loss 2.4")
    log.info(message)
    log.info("step 101 loss 2.2")
    for handler in log.handlers:
        handler.close()
    found = rows(tmp_path)
    assert {name: found.get(100, {}).get(name) for name in values} == values
    assert bool(values) == (100 in found)


class Scalar:
    """A tensor of one element, as far as anything asks."""

    def item(self):
        return 2.5


@pytest.mark.parametrize(
    ("extra", "values"),
    [
        ({"step": 7, "loss": 2.5, "lr": 1e-3}, {"train_loss_raw": 2.5, "learning_rate": 1e-3}),
        ({"step": 7, "metrics": {"loss": np.float32(2.5), "val_loss": 3}}, {"train_loss_raw": 2.5, "val_loss": 3.0}),
        ({"metrics": {"step": 7, "loss": Scalar()}}, {"train_loss_raw": 2.5}),
        ({"step": 7, "loss": 2.5, "model": object(), "tags": {"loss": "high", 3: None}, "ok": True}, {"train_loss_raw": 2.5}),
        ({"step": 7, "loss": 1 / 3}, {"train_loss_raw": 1 / 3}),
        ({"step": Decimal(7), "loss": 2.5}, {}),
    ],
)
def test_numbers_in_extra_are_taken_as_they_are(log, tmp_path, extra, values):
    handler = attached(log, tmp_path)
    log.info("a step", extra=extra)
    handler.close()
    assert (rows(tmp_path).get(7, {}) if (tmp_path / "scalars.jsonl").exists() else {}) == values


def test_records_of_one_step_are_one_line_and_the_exact_number_counts(log, tmp_path):
    handler = attached(log, tmp_path)
    log.info("step 1 loss 2.33", extra={"loss": 2.3333})
    log.info("val_loss 2.5")
    log.info("step 2 loss 2.1")
    log.info("step 1 loss 9.9")  # a step that is over
    handler.close()
    assert rows(tmp_path) == {1: {"train_loss_raw": 2.3333, "val_loss": 2.5}, 2: {"train_loss_raw": 2.1}}


def test_where_no_record_names_a_step_each_loss_is_one(log, tmp_path):
    handler = attached(log, tmp_path)
    for loss in (3.0, 2.5, 2.0):
        log.info("loss: %.2f", loss)
    log.info("val_loss: 2.1")
    handler.close()
    assert {step: row["train_loss_raw"] for step, row in rows(tmp_path).items()} == {1: 3.0, 2: 2.5, 3: 2.0}
    assert rows(tmp_path)[3]["val_loss"] == 2.1


def test_steps_that_are_counted_from_0_are_counted_from_1(log, tmp_path):
    handler = attached(log, tmp_path)
    log.info("step 0: val loss 4.2")
    for step in range(3):
        log.info("iter %d: loss %.1f, time 20ms", step, 4 - step)
    log.info("step 2: val loss 2.5")
    handler.close()
    assert {step: row["train_loss_raw"] for step, row in rows(tmp_path).items()} == {1: 4.0, 2: 3.0, 3: 2.0}
    assert [row.get("val_loss") for row in rows(tmp_path).values()] == [None, None, 2.5]


def losing(log):
    """Log a training whose loss is no number from step 90 on, and yield each step that went on."""
    for step in range(1, 200):
        log.info("step %d loss %.4f", step, 4 * 0.98**step if step < 90 else math.nan)
        yield step


def test_a_lost_training_raises_out_of_the_call_of_the_logger(log, tmp_path):
    attached(log, tmp_path, raise_on="sev0")
    reached = []
    with pytest.raises(ckaudit.UnhealthyRunError, match="NUM001"):
        reached.extend(losing(log))
    assert 90 < len(reached) + 1 <= 100
    log.info("step %d loss 3.0", 150)  # the lock of the handler is free again


def test_without_being_asked_it_only_says_so(log, tmp_path, caplog):
    attached(log, tmp_path)
    assert len([*losing(log)]) == 199
    told = [record for record in caplog.records if record.name == "ckaudit.watch"]
    assert [record.levelno for record in told if "NUM001" in record.getMessage()] == [logging.CRITICAL]


def test_what_is_under_way_is_audited_when_somebody_asks(log, tmp_path):
    handler = attached(log, tmp_path, every=1000, raise_on="sev0")
    for step in range(1, 100):
        log.info("step %d loss %.4f", step, 4 * 0.98**step)
    log.info("step 100 loss nan")
    with pytest.raises(ckaudit.UnhealthyRunError):
        handler.check()


def test_on_the_root_logger_its_own_words_are_no_numbers_of_the_run(tmp_path):
    root = logging.getLogger()
    handler = ckaudit.LogHandler(tmp_path)
    root.addHandler(handler)
    try:
        logging.getLogger("ckaudit.watch").warning("run step 5: LOSS001 loss 9.9")
        logging.getLogger("mine").warning("step 6 loss 2.0")
    finally:
        root.removeHandler(handler)
        handler.close()
    assert rows(tmp_path) == {6: {"train_loss_raw": 2.0}}


def test_what_else_fails_is_dealt_with_as_in_any_handler(log, tmp_path, monkeypatch):
    errors = io.StringIO()
    monkeypatch.setattr("sys.stderr", errors)
    attached(log, tmp_path, raise_on="note").handle(logging.makeLogRecord({"msg": "step %s loss %s", "args": ("1",)}))
    assert "TypeError: not enough arguments" in errors.getvalue()


def test_the_run_is_what_a_writer_would_have_written(log, tmp_path):
    handler = attached(log, tmp_path / "a", planned_steps=60, vocabulary=64)
    with Writer(tmp_path / "b", planned_steps=60, vocabulary=64) as writer:
        for step in range(1, 61):
            log.info("step %d loss %r", step, 4 * 0.98**step)
            writer.step(step, loss=4 * 0.98**step)
    handler.close()
    handler.close()
    assert rows(tmp_path / "a") == rows(tmp_path / "b")
    facts = [json.loads((tmp_path / name / "run.json").read_text()) for name in "ab"]
    assert facts[0].keys() == facts[1].keys()
    assert ckaudit.validate(tmp_path / "a").severity is None
    assert len(ckaudit.metrics(tmp_path / "a", "train_loss_raw")["train_loss_raw"].steps) == 60


def test_an_unknown_option_is_refused(tmp_path):
    with pytest.raises(TypeError, match="vocabularry"):
        ckaudit.LogHandler(tmp_path, vocabularry=3)


def test_it_needs_no_torch(tmp_path):
    program = (
        "import sys; sys.modules['torch'] = None; import ckaudit; ckaudit.LogHandler('run').close(); ckaudit.Watch('run').check()"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0
    assert (tmp_path / "run" / "run.json").is_file()
