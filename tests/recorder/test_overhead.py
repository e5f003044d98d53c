"""What recording costs, with a time that only moves when it is told to."""

import pytest

from ckaudit.recorder.loop.overhead_meter import OverheadMeter


def test_a_checkpoint_says_what_it_and_all_steps_since_the_last_one_cost(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("ckaudit.recorder.loop.overhead_meter.perf_counter", lambda: now[-1])
    meter = OverheadMeter()
    for training, recording in ((8, 2), (7, 2), (30, 3)):
        now.append(now[-1] + training + recording)
        meter.durations.append(training)
        meter.spent += recording
    now.append(now[-1] + 10 + 4)  # a step with a checkpoint, up to where that is built
    cost = meter.cost(4, 2)
    assert (cost.ms, cost.step_share) == (6000, 0.75)  # of 8 seconds, the middle of 8, 7 and 30
    assert cost.share == round((2 + 2 + 3 + 4) / (10 + 9 + 33 + 14), 5)
    now.append(now[-1] + 1)
    meter.spent += 4 + 1  # the step ends, and says what recording took of all of it
    now.append(now[-1] + 8 + 3)
    assert meter.cost(3, 0).share == round((1 + 3) / (1 + 11), 5)


def test_recording_never_takes_more_than_all_of_the_time(monkeypatch):
    """What the first look at a forward pass takes, as where kernels are loaded, is not held against the steps after it."""
    now = [0.0]
    monkeypatch.setattr("ckaudit.recorder.loop.overhead_meter.perf_counter", lambda: now[-1])
    meter = OverheadMeter()
    meter.durations.append(1)
    now.append(100.0)
    assert meter.cost(99, 0).share == 0.99
    meter.spent += 99
    now.append(now[-1] + 4 + 1)
    assert meter.cost(1, 0).share == 0.2


@pytest.mark.parametrize(("taken", "step"), [(0.006, 300.0), (2e-7, 0.01), (0.0, 1.0), (3.0, 1e-3)])
def test_what_costs_something_has_a_share_of_the_longest_step(taken, step):
    meter = OverheadMeter()
    meter.durations.append(step)
    cost = meter.cost(taken, 0.0)
    assert (cost.ms == 0) == (cost.step_share == 0)
    assert cost.step_share == pytest.approx(cost.ms / 1e3 / step, rel=1e-3)
