"""What causes measure of rates and updates, against values worked out by hand."""

import numpy as np
import pytest

from ckaudit.causes.shared.batches import has_no_token_shift, token_shift
from ckaudit.causes.shared.loss_curves import training_loss_jump
from ckaudit.causes.shared.rate_course import ResumeRates, changes_at_resumes, constant_since, known_rate, rate_fall
from ckaudit.causes.shared.update_size import gain_of_gradient, movement_per_rate, per_element, total_rate_over_spread
from ckaudit.contract.schema.manifest import Manifest, Session, TensorFacts
from tests.metrics.samples import cells, column, table


def rate_of(*values):
    return np.arange(1, len(values) + 1), np.array(values, float)


def facts_of(**fields):
    return Manifest(schema_version="ck.run.v1", **fields)


def test_a_line_down_to_a_floor_is_smooth_and_ends_where_the_floor_begins():
    fall = rate_fall(*rate_of(0.5, 1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.1))
    assert fall is not None
    assert (fall.step, fall.lowest, fall.highest) == (11, 0.1, 1.0)
    assert fall.largest_drop == pytest.approx(0.1)
    assert fall.is_smooth


def test_a_rate_that_is_set_to_zero_falls_at_once():
    fall = rate_fall(*rate_of(1.0, 1.0, 0.0, 0.0))
    assert fall is not None
    assert (fall.step, fall.lowest, fall.is_smooth) == (3, 0.0, False)


@pytest.mark.parametrize("values", [(), (0.0, 0.0), (0.1, 0.2, 0.3), (0.3, 0.3)])
def test_a_rate_that_does_not_fall_has_no_end(values):
    assert rate_fall(*rate_of(*values)) is None


def test_a_rate_stands_since_its_last_change_if_that_is_twenty_points_ago():
    assert constant_since(*rate_of(*[0.1, 0.2, 0.3] + [0.4] * 20)) == 4
    assert constant_since(*rate_of(*[0.1, 0.2, 0.3] + [0.4] * 19)) is None
    assert constant_since(*rate_of(*[0.4] * 25)) == 1


def test_the_planned_change_is_taken_off_that_at_a_seam():
    facts = facts_of(
        sessions=[Session(), Session(resumed_from=2)], planned_learning_rate=[[1, 1.0], [2, 0.8], [3, 0.4], [4, 0.2]]
    )
    assert changes_at_resumes(*rate_of(1.0, 0.8, 4.0, 2.0), facts) == [ResumeRates(2, 0.8, 4.0, pytest.approx(10.0))]
    assert changes_at_resumes(*rate_of(1.0, 0.8), facts) == []


def test_the_largest_of_all_groups_is_the_rate():
    steps, values = known_rate(table({1: {"a": 0.1, "b": 0.2}, 2: {"a": 0.3}, 3: {}}))
    assert (steps.tolist(), values.tolist()) == ([1, 2], [0.2, 0.3])
    assert not known_rate(None)[1].size


def test_steps_at_low_rates_and_of_what_stands_still_do_not_count():
    step = table({10: {"w": 0.2, "v": 0.2, "still": 0.0}, 20: {"w": 0.4, "v": 0.1, "still": 0.0}, 30: {"w": 90.0, "v": 90.0}})
    rate = column([0.5, 1.0, 0.1], steps=[10, 20, 30])
    moved = movement_per_rate(step, rate)
    assert moved is not None
    assert np.allclose(moved, [0.3, 0.15])
    assert movement_per_rate(step, None) is None
    assert movement_per_rate(None, rate) is None


def test_a_norm_per_element_is_that_over_the_root_of_their_number_and_of_matrices_alone():
    facts = facts_of(tensors={"w": TensorFacts(kind="linear", shape=[3, 12]), "b": TensorFacts(kind="bias", shape=[9])})
    found = per_element(table({10: {"w": 3.0, "b": 3.0}}), facts)
    assert found is not None
    assert cells(found) == {(10, "w"): 0.5}
    assert per_element(table({10: {"b": 3.0}}), facts) is None
    assert per_element(None, facts) is None


def test_plain_descent_gives_one_for_every_tensor():
    gradient = table({10: {"a": 1.0, "b": 10.0, "c": 100.0}})
    update = table({10: {"a": 0.05, "b": 0.5, "c": 5.0}})
    found = gain_of_gradient(update, gradient, column([0.1], steps=[10]), column([0.5], steps=[10]))
    assert found is not None
    gains, gradients = found
    assert np.allclose(gains, 1.0)
    assert gradients.tolist() == [1.0, 10.0, 100.0]
    assert gain_of_gradient(update, gradient, None, None) is None


def test_the_reach_is_the_area_under_the_rate_over_the_first_spread():
    std = table({0: {"a": 0.02, "b": 0.02, "norm": 0.0}, 10: {"a": 0.5, "b": 0.5, "norm": 0.5}})
    assert total_rate_over_spread(column([0.0, 1e-3, 1e-3], steps=[0, 10, 20]), std) == pytest.approx((0.005 + 0.01) / 0.02)
    assert total_rate_over_spread(None, std) is None


@pytest.mark.parametrize(
    ("drift", "same", "moved"),
    [([0.02] * 6, True, None), ([0.02] * 5, False, None), ([0.02] * 4 + [0.3] * 4, False, (0.02, 0.3, 5))],
)
def test_tokens_are_the_same_only_where_they_were_looked_at_often(drift, same, moved):
    series = column(drift)
    assert has_no_token_shift(series) is same
    assert token_shift(series) == moved


@pytest.mark.parametrize("after", [1, 2, 3, 10])
def test_a_jump_of_the_loss_is_seen_in_its_last_points_too(after):
    losses = column([*(3 - np.arange(41 - after) / 50), *[8.0] * after], name="train_loss_raw")
    jump = training_loss_jump(losses, 32)
    assert (jump.step, jump.after) == (42 - after, after)


@pytest.mark.parametrize(("third", "is_at_once"), [(9.0, True), (5.0, True), (2.4, False)])
def test_one_hard_batch_after_a_jump_does_not_make_it_slow(third, is_at_once):
    """A batch of 9 in the middle of losses of 5 is one; losses that go on to 9 from 5 by way of 7 have not jumped at once."""
    after = [5.0, 5.0, 9.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0] if is_at_once else [third, *np.linspace(4, 9, 9)]
    losses = column([*(2 - np.arange(30) / 100), *after], name="train_loss_raw")
    assert (training_loss_jump(losses, 31) is not None) is is_at_once
