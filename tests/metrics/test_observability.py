"""Signs of life and health, on files that are read and on values made by hand."""

import json
import math

import pytest

from ckaudit.contract.schema.manifest import Session
from ckaudit.metrics.observability import (
    checkpoint_ok,
    checkpoint_size,
    checkpoint_time,
    error_event_rate,
    heartbeat_missing,
    metrics_ingest_lag,
    nan_inf_events,
    restart_rate,
)
from ckaudit.run.read import read_run
from tests.metrics.samples import NAN, cells, run_of


def values(series):
    return {step: value for (step, _), value in cells(series).items()}


def scalar(name, rows):
    return {name: {step: {name: value} for step, value in rows.items()}}


@pytest.fixture
def folder(tmp_path):
    for step in (10, 20, 30):
        text = json.dumps({"schema_version": "ck.analysis.v1", "step": step, "time": 1000.0 + step, "cost": {"ms": 50.0}})
        path = tmp_path / f"analysis_checkpoint_step_{step:08d}.json"
        path.write_text(text[:40] if step == 20 else text)
    lines = [{"step": 10, "time": 1010.25}, {"step": 20, "time": 1021.0}, {"step": 30, "time": 1029.0, "checkpoint_ok": 0.0}]
    (tmp_path / "scalars.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def test_files_tell_whether_they_are_whole_how_large_and_how_late(folder):
    run = read_run(folder)
    assert values(checkpoint_ok(run)) == {10: 1.0, 20: 0.0, 30: 0.0}
    sizes = {step: (folder / f"analysis_checkpoint_step_{step:08d}.json").stat().st_size for step in (10, 30)}
    assert values(checkpoint_size(run)) == sizes
    assert values(checkpoint_time(run)) == {10: 0.05, 30: 0.05}
    assert values(metrics_ingest_lag(run)) == {10: 0.25, 30: 0.0}


def test_what_the_trainer_said_of_its_own_checkpoints_counts():
    logged = {"checkpoint_size": [5.0], "checkpoint_time": [2.0], "checkpoint_ok": [1.0], "file_bytes": [9.0], "file_ok": [0.0]}
    run = run_of({"cost.ms": {1: {"cost.ms": 7.0}}}, logged)
    assert [values(each(run))[1] for each in (checkpoint_size, checkpoint_time, checkpoint_ok)] == [5.0, 2.0, 1.0]


def test_places_that_are_not_finite_are_counted_by_hand():
    sections = {
        "weights.*.nonfinite_count": {3: {"a": 0.0, "b": 7.0}, 4: {"a": NAN, "b": 0.0}},
        "gradients.*.nonfinite_count": {2: {"a": 9.0}, 3: {"a": 1.0}},
    }
    scalars = {
        "train_loss_raw": [1.0, 1.0, NAN, 1.0],
        "grad_global_norm": [1.0, math.inf, math.inf, 1.0],
        "skipped_updates": [0.0, 1.0, 0.0, 0.0],
        "nan_inf_events": [2.0, None, 1.0, None],
    }
    assert values(nan_inf_events(run_of(sections, scalars))) == {1: 2.0, 2: 0.0, 3: 4.0, 4: 1.0}


def test_restarts_of_the_last_day_are_no_count_of_errors():
    hour = 3600.0
    starts = [0.0, 1.0, 2.0, 26.5]
    ends = [None, 1.5, None, None]
    sessions = [
        Session(start=start * hour) if end is None else Session(start=start * hour, end=end * hour)
        for start, end in zip(starts, ends, strict=True)
    ]
    times = {1: 0.5, 2: 1.0, 3: 3.0, 4: 25.0, 5: 26.0, 6: 27.0}
    run = run_of(scalars=scalar("time", {step: each * hour for step, each in times.items()}), sessions=sessions)
    restarts = {step: sum(now - 24 < start <= now for start in starts[1:]) for step, now in times.items()}
    assert values(restart_rate(run)) == restarts == {1: 0, 2: 1, 3: 2, 4: 1, 5: 0, 6: 1}
    assert not error_event_rate(run)


def test_logged_rates_count_without_sessions():
    run = run_of(scalars={"restart_rate": [3.0], "error_event_rate": {1: {"oom": 2.0, "nccl": 0.0}}})
    assert values(restart_rate(run)) == {1: 3.0}
    assert cells(error_event_rate(run)) == {(1, "oom"): 2.0, (1, "nccl"): 0.0}


def test_a_rank_without_a_fresh_sign_of_life_is_missing():
    beats = {
        10: {"rank.0": 1000.0, "rank.1": 1001.0, "rank.2": 999.0},
        20: {"rank.0": 2000.0, "rank.2": 1999.0},
        30: {"rank.0": 3000.0, "rank.1": 2500.0, "rank.2": 2999.0},
    }
    path = "rank_facts.heartbeat"
    assert values(heartbeat_missing(run_of({path: beats}))) == {10: 0.0, 20: 1.0, 30: 1.0}
    assert values(heartbeat_missing(run_of({path: beats}, {"heartbeat_missing": [5.0]}, world_size=4))) == {
        1: 5.0,
        10: 1.0,
        20: 2.0,
        30: 2.0,
    }
