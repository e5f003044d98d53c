"""The clock of steps, with a time that only moves when it is told to."""

import pytest
import torch
from torch import nn

from ckaudit.recorder.loop.step_clock import WINDOW, StepClock


@pytest.fixture
def moments(monkeypatch):
    """Return a list whose last value is the time."""
    now = [0.0]
    monkeypatch.setattr("ckaudit.recorder.loop.step_clock.perf_counter", lambda: now[-1])
    return now


def step(clock, model, moments, *, data, forward, backward, rest, watched=False, recording=0.0, following=0):
    """Take a step of these durations, in seconds."""
    moments.append(moments[-1] + data)
    with torch.no_grad():
        model(torch.ones(1))  # a validation is no part of the step's own passes
    handle = model.inside.register_forward_hook(lambda *_: moments.append(moments[-1] + forward))
    model(torch.ones(1))
    handle.remove()
    moments.append(moments[-1] + backward)
    clock.gradients_ready()
    moments.append(moments[-1] + rest)
    clock.finish(moments[-1], recording, watched=watched)
    moments.append(moments[-1] + recording)
    clock.restart(following)


@pytest.fixture
def model():
    """Return a model with a module inside."""
    whole = nn.Sequential()
    whole.add_module("inside", nn.Linear(1, 1))
    return whole


@pytest.mark.parametrize(("waits_in_forward", "own"), [(False, 1 + 2 + 8), (True, 1 + 8)])
def test_waiting_for_other_ranks_is_taken_out(model, moments, waits_in_forward, own):
    clock = StepClock(model, waits_in_forward=waits_in_forward)
    step(clock, model, moments, data=1, forward=2, backward=4, rest=8)
    assert clock.take() == (own, 1)
    clock.close()
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_steps_that_were_looked_at_count_only_where_there_are_no_others(model, moments):
    clock = StepClock(model)
    for data in (1, 2, 3):
        step(clock, model, moments, data=data, forward=0, backward=9, rest=0)
    step(clock, model, moments, data=50, forward=0, backward=9, rest=0, watched=True)
    assert clock.take() == (2, 2)
    step(clock, model, moments, data=50, forward=0, backward=9, rest=0, watched=True)
    assert clock.take() == (50, 50)


def test_what_the_recorder_took_is_no_part_of_a_step(model, moments):
    clock = StepClock(model)
    step(clock, model, moments, data=3, forward=0, backward=5, rest=0, recording=1)
    assert clock.take()[0] == 2


def test_without_hooks_a_step_is_whole_and_old_ones_are_forgotten(moments):
    clock = StepClock()
    for duration in [100] * WINDOW + [1] * WINDOW:
        moments.append(moments[-1] + duration)
        clock.finish(moments[-1], 0, watched=False)
        clock.restart()
    assert clock.take() == (1, None)


def test_a_whole_step_ends_with_its_recording(model, moments):
    clock = StepClock(model)
    step(clock, model, moments, data=3, forward=2, backward=5, rest=1, recording=4)
    step(clock, model, moments, data=3, forward=2, backward=5, rest=1, recording=90, watched=True)
    step(clock, model, moments, data=1, forward=2, backward=5, rest=1)
    assert [(time.whole, time.input, time.exchange, time.passes) for time in clock.take_times()] == [
        (15, 3, None, 1),
        (9, 1, None, 1),
    ]
    assert clock.take_times() == []


def test_a_model_that_trains_alone_is_hooked_in_the_steps_before_vital_signs(model, moments):
    clock = StepClock(model, alone=True)
    hooked = []
    for number in range(1, 51):
        clock.restart(number)
        hooked += [number] * bool(model._forward_pre_hooks)
        assert not model._forward_hooks
        step(clock, model, moments, data=1, forward=1, backward=1, rest=1, following=number + 1)
    assert hooked == [*range(17, 25), *range(42, 50)]
    known = [time.input for time in clock.take_times()]
    assert known.count(1) == 16
    assert known.count(None) == 34
    clock.restart(20)
    clock.close()
    assert not model._forward_pre_hooks


def test_recording_before_the_forward_pass_is_no_waiting_for_data(model, moments):
    """Of the 5 s before the forward pass the recorder took 4, where it was called by an optimizer that runs the passes itself."""
    clock = StepClock(model)
    step(clock, model, moments, data=5, forward=0, backward=2, rest=0, recording=4)
    assert clock.take() == (1, 1)
