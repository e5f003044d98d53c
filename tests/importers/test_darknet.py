"""Darknet's lines of training, among those of its layers."""

import math

import pytest

from ckaudit.audit import triage

LOG = """\
Region 82 Avg IOU: 0.265832, Class: 0.461913, Obj: 0.471713, No Obj: 0.4664, .5R: 0.000000, .75R: 0.000000,  count: 1
 1: 219.687372, 219.687372 avg loss, 0.000000 rate, 9.310000 seconds, 64 images
Loaded: 0.000035 seconds
 2: 235.243833, 221.243018 avg loss, 0.001000 rate, 2.478294 seconds, 128 images
 3: nan, nan avg loss, 0.001000 rate, 2.158640 seconds, 192 images
 4: -nan, -nan avg, 0.001000 rate, 2.158640 seconds, 256 images
"""


def curve(run, name):
    return {row["step"]: row[name] for row in run.rows if name in row}


def test_a_line_holds_loss_rate_and_seconds(imported):
    run = imported(LOG, "train.log")
    losses = curve(run, "train_loss_raw")
    assert (losses[1], losses[2]) == (219.687372, 235.243833)
    assert math.isnan(losses[3])
    assert math.isnan(losses[4])
    assert curve(run, "learning_rate") == {2: 0.001, 3: 0.001, 4: 0.001}  # six decimals hold none of the first
    assert curve(run, "step_time")[1] == pytest.approx(9.31)
    assert any("average of the loss was left out" in note for note in run.notes)


def test_a_loss_that_is_no_number_is_found(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(LOG)
    assert ("NUM001", "sev0", 3) in {(each.code, each.severity, each.first_step) for each in triage(path).findings}
