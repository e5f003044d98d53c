import numpy as np
import pytest

from ckaudit.contract.schema.manifest import Cadence
from ckaudit.recorder.loop.step_state import StepState
from ckaudit.recorder.loop.triggers import CheckpointSchedule, EventAllowance, EventDetector, EventThresholds, HistoryStep


def events_of(losses=(), norms=(), **limits):
    seen = EventDetector(EventThresholds(**limits))
    length = max(len(losses), len(norms))
    pairs = [(losses[i] if losses else None, norms[i] if norms else None) for i in range(length)]
    return [seen.observe(loss, norm, {}) for loss, norm in pairs]


def test_a_loss_above_twice_its_moving_average_is_a_spike():
    losses = (3 + np.random.default_rng(0).normal(size=60) * 0.2).tolist()
    weights = 0.98 ** np.arange(59, -1, -1)
    average = np.dot(weights, losses) / weights.sum()
    assert events_of([*losses, 2.001 * average])[-1] == ["loss_spike"]
    assert events_of([*losses, 1.999 * average])[-1] == []


def test_there_is_no_spike_before_twenty_losses():
    assert events_of([1.0] * 19 + [9.0])[-1] == []
    assert events_of([1.0] * 20 + [9.0])[-1] == ["loss_spike"]


def test_a_negative_average_makes_no_spike():
    assert not any(events_of([-1.0] * 30 + [5.0, -9.0]))


def test_a_norm_above_ten_medians_is_an_event():
    norms = np.random.default_rng(1).uniform(0.5, 2, size=130).tolist()
    limit = 10 * np.median(norms[-100:])
    assert events_of(norms=[*norms, limit * 1.001])[-1] == ["grad_norm"]
    assert events_of(norms=[*norms, limit * 0.999])[-1] == []
    assert events_of(norms=[1.0] * 19 + [99.0])[-1] == []


def test_a_tensor_dies_once_and_again_only_after_it_lived():
    seen = EventDetector(EventThresholds())
    norms = [1.0, 1e-11, 0.0, 1e-9, 1e-11, 1.0, 0.0]
    found = [seen.observe(None, None, {"w": norm, "other": 1.0}) for norm in norms]
    assert found == [[], ["dead_parameter"], [], [], [], [], ["dead_parameter"]]


def test_a_tensor_without_a_gradient_is_not_dead_and_stays_what_it_was():
    seen = EventDetector(EventThresholds())
    assert seen.observe(None, None, {}) == []
    assert seen.observe(None, None, {"w": 0.0}) == ["dead_parameter"]
    assert [seen.observe(None, None, norms) for norms in ({}, {"w": 0.0})] == [[], []]


def test_nan_is_an_event_at_the_first_second_fourth_and_eighth_step():
    found = events_of([1.0] * 3 + [float("nan")] * 20)
    assert [step for step, events in enumerate(found, -2) if events == ["nonfinite"]] == [1, 2, 4, 8, 16]


@pytest.mark.parametrize(("loss", "norm"), [(float("inf"), 1.0), (1.0, float("nan")), (None, float("inf"))])
def test_either_number_can_be_not_finite(loss, norm):
    assert EventDetector(EventThresholds()).observe(loss, norm, {}) == ["nonfinite"]


def test_a_scaler_that_skipped_the_step_forgives_the_norm_but_not_the_loss():
    seen = EventDetector(EventThresholds())
    assert seen.observe(1.0, float("inf"), {}, forgive_norm=True) == []
    assert seen.observe(float("nan"), float("inf"), {}, forgive_norm=True) == ["nonfinite"]


def test_non_finite_values_do_not_enter_the_averages():
    losses = [1.0] * 20 + [float("nan"), float("inf"), 1.5, 2.5]
    assert events_of(losses)[-2:] == [[], ["loss_spike"]]


def test_patience_spaces_event_checkpoints_and_ends():
    patience = EventAllowance(EventThresholds(cooldown=10, at_most=3))
    assert [step for step in range(100) if patience.allows(step)] == [0, 10, 20]


@pytest.mark.parametrize(("planned", "answered"), [(41, [8, 10, 14, 32, 40]), (25, [8, 10, 14, 25, 32, 40])])
def test_who_is_asked_ahead_has_the_checkpoints_of_who_goes_step_by_step(planned, answered):
    limits, cadence = (
        EventThresholds(loss_after=5, cooldown=3, at_most=2),
        (Cadence(until=20, every=5), Cadence(until=None, every=8)),
    )
    recorders, writers = (CheckpointSchedule(cadence, limits, planned) for _ in range(2))
    events = []
    for step in range(1, 44):
        step_state = StepState(step=step)
        if step in (recorders.next_due, recorders.planned_steps) or recorders.latest:
            recorders.begin(step_state)
        assert step_state.triggers == (writers.triggers(step) if writers.is_due(step) else [])
        assert step_state.event_step == (step - 1 if writers.follows_event(step) else None)
        events += [step] if step_state.event_step else []
        moment = HistoryStep(step, 99.0 if step in (7, 8, 9, 13, 15, 24, 31, 39) else 1.0, None, None, {})
        for schedule in (recorders, writers):
            schedule.latest = []
            schedule.observe(moment, None, {})
        writers.ask(step + 1)
    assert events == answered  # two of their own, and those that the cadence or the plan asks for anyway
