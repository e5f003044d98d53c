"""What a line says of the pace, with clocks that are told by hand, in a real loop too."""

import sys

import pytest
import torch

from ckaudit.recorder import Recorder
from ckaudit.recorder.batch_facts import token_count
from ckaudit.recorder.loop.step_clock import StepTime
from ckaudit.recorder.loop.step_state import StepState
from ckaudit.recorder.loop.throughput import ThroughputMeter
from ckaudit.validate import validate
from tests.recorder.conftest import LENGTH


class FixedClock:
    """A clock that has measured these steps."""

    def __init__(self, *times):
        self.times = list(times)

    def take_times(self):
        return self.times


TOKENS = torch.arange(6).reshape(2, 3)
COUNTED = torch.tensor([[1, 2, -100], [4, 5, -100]])


def values_of(*times, alone=False, batch=None, **values):
    return ThroughputMeter(FixedClock(*times), alone=alone).values(StepState(step=25, values=values), batch)


def test_shares_are_medians_of_each_steps_own():
    times = [
        StepTime(8.0, 2.0, 1.0, 1),
        StepTime(10.0, 1.0, 4.0, 1),
        StepTime(100.0, 80.0, 10.0, 1),
        StepTime(9.0),
        StepTime(7.0),
    ]
    assert values_of(*times) == {
        "step_time": 9.0,
        "dataloader_stall_frac": 0.25,
        "comm_time_frac": 0.125,
        "compute_time_frac": 0.5,
    }


@pytest.mark.parametrize(
    ("time", "alone", "known"),
    [
        (StepTime(4.0, 1.0), True, {"dataloader_stall_frac": 0.25, "compute_time_frac": 0.75}),
        (StepTime(4.0, 1.0), False, {"dataloader_stall_frac": 0.25}),
        (StepTime(4.0, None, 1.0), False, {"comm_time_frac": 0.25}),
        (StepTime(4.0), True, {}),
    ],
)
def test_what_is_not_known_is_not_recorded(time, alone, known):
    assert values_of(time, alone=alone) == {"step_time": 4.0, **known}


def test_without_a_plain_step_there_is_no_pace():
    assert values_of(alone=True, tokens_seen=12) == {}


@pytest.mark.parametrize(
    ("alone", "passes", "values", "expected"),
    [
        (True, 1, {}, 4 / 2),
        (True, 2, {}, None),
        (False, 1, {}, None),
        (False, 2, {"tokens_per_update": 96}, 96 / 2),
        (True, 1, {"tokens_seen": 1000}, None),
    ],
)
def test_tokens_are_those_that_are_told_or_those_of_the_only_batch(alone, passes, values, expected):
    time = StepTime(2.0, 0.5, None, passes)
    assert values_of(time, alone=alone, batch=(TOKENS, COUNTED), **values).get("tokens_per_sec") == expected


def test_tokens_seen_tell_the_tokens_of_a_step_by_their_growth():
    pace = ThroughputMeter(FixedClock(StepTime(0.5)), alone=False)
    for step, seen in ((25, 1000), (50, 3500)):
        found = pace.values(StepState(step=step, values={"tokens_seen": seen}), None)
    assert found["tokens_per_sec"] == 100 / 0.5


@pytest.mark.parametrize(
    ("batch", "expected"),
    [((TOKENS, COUNTED), 4), (TOKENS, 6), ({"input_ids": TOKENS, "labels": COUNTED}, 4), (torch.rand(2, 3), None), (None, None)],
)
def test_counted_tokens_are_targets_that_are_not_ignored(batch, expected):
    assert token_count(batch) == expected


@pytest.fixture
def pass_time(monkeypatch):
    """Return what lets seconds pass for the recorder, for which time stands still otherwise."""
    now = [0.0]
    for name, module in [*sys.modules.items()]:
        if name.startswith("ckaudit.recorder") and hasattr(module, "perf_counter"):
            monkeypatch.setattr(module, "perf_counter", lambda: now[0])

    def wait(seconds):
        now[0] += seconds

    return wait


def test_a_loop_that_waits_for_its_data_says_so(tiny, batches, loss_of, tmp_path, lines, pass_time):
    model = tiny()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Recorder(model, tmp_path, optimizer=optimizer) as recorder:
        for step in range(50):
            batch = batches(1, seed=step)[0]
            pass_time(0.75)
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            pass_time(0.25)
            loss.backward()
            optimizer.step()
            recorder.step(loss, batch=batch)
    assert recorder._guard.failures == 0
    expected = {"step_time": 1.0, "dataloader_stall_frac": 0.75, "compute_time_frac": 0.25, "tokens_per_sec": 4 * LENGTH}
    names = {*expected, "comm_time_frac"}
    found = {line["step"]: told for line in lines(tmp_path) if (told := {name: line[name] for name in names & line.keys()})}
    assert found == {25: expected, 50: expected}
    assert not validate([tmp_path]).findings
