import numpy as np
import pytest

from ckaudit.audit.measure import SHAPE, MeasuredMetric, StepRange, label_summaries, select_steps, trend_of, worst_label
from tests.loops import for_each
from tests.metrics.samples import NAN, cells, column, table


def outline(series):
    return worst_label(MeasuredMetric("x", "", "1", "", series))


def test_trends_of_noise_and_of_slopes():
    rng = np.random.default_rng(0)
    steps, noise = np.arange(400), rng.normal(0, 1, 400)
    assert trend_of(steps, noise) == "steady"
    assert trend_of(steps, noise + steps / 20) == "rising"
    assert trend_of(steps, noise - steps / 20) == "falling"
    assert trend_of(steps, np.ones(400)) == "steady"


def test_only_the_second_half_counts():
    values = np.concatenate([np.arange(0.0, 200.0), np.arange(200.0, 0.0, -1)])
    assert trend_of(np.arange(400), values) == "falling"


def test_one_wild_point_bends_no_trend():
    values = np.arange(100.0)
    values[99] = -1e9
    assert trend_of(np.arange(100), values) == "rising"


@pytest.mark.parametrize("count", [0, 1, 14])
def test_too_few_points_have_no_trend(count):
    assert trend_of(np.arange(count), np.arange(float(count))) is None


def test_points_that_are_not_finite_are_left_out_of_a_trend():
    values = np.arange(100.0)
    values[60:80] = NAN
    assert trend_of(np.arange(100), values) == "rising"
    assert trend_of(np.arange(100), np.full(100, NAN)) is None


def test_the_false_alarms_of_noise_are_as_rare_as_promised():
    rng = np.random.default_rng(1)
    told = [trend_of(np.arange(200), rng.normal(0, 1, 200)) for _ in range(1_000)]
    assert sum(each != "steady" for each in told) < 25


def test_a_spike_is_not_lost_from_the_shape():
    values = [1.0] * 1_000
    values[777] = 50.0
    shape = outline(column(values)).shape
    assert len(shape) == SHAPE
    assert max(shape) == 50.0


def test_each_label_has_its_own_last_value():
    series = table({1: {"a": 9.0, "b": -20.0}, 2: {"a": 1.0}, 3: {"c": 2.0}})
    found = label_summaries(MeasuredMetric("x", "", "1", "", series), max_labels=None)
    assert [(each.label, each.last, each.step, each.points) for each in found] == [
        ("b", -20.0, 1, 1),
        ("c", 2.0, 3, 1),
        ("a", 1.0, 2, 2),
    ]
    assert outline(series).label == "b"
    assert outline(table({1: {"a": 9.0, "b": NAN}})).last == "NaN"


def test_a_cut_keeps_what_was_recorded_in_it():
    series = table({step: {"a": float(step)} | ({"b": 1.0} if step == 5 else {}) for step in (1, 5, 9, 10, 11, 20, 21)})
    assert list(cells(select_steps(series, StepRange(first=9, last=20)))) == [(9, "a"), (10, "a"), (11, "a"), (20, "a")]
    assert select_steps(series, StepRange(first=9)).labels == ("a",)
    assert select_steps(series, StepRange(every=10)).steps.tolist() == [10, 20, 21]
    assert select_steps(series, StepRange(every=5)).steps.tolist() == [5, 10, 11, 20, 21]
    assert not select_steps(series, StepRange(first=100))
    assert not select_steps(series, StepRange(first=100, every=5))


def test_of_every_k_steps_the_last_recorded_one_is_kept():
    series = column([1.0, 2.0, None, 4.0, None, None], steps=range(1, 7))
    assert cells(select_steps(series, StepRange(every=3))) == {(2, "x"): 2.0, (4, "x"): 4.0}


@pytest.mark.parametrize(("worst", "expected"), [("high", "cab"), ("low", "cba"), ("first", "abc")])
def test_the_worst_label_comes_first_as_the_metric_has_it(worst, expected):
    series = table({1: {"a": 3.2, "b": 0.05, "c": NAN}})
    measured = MeasuredMetric("x", "", "1", "", series, worst)
    assert "".join(each.label for each in label_summaries(measured, max_labels=None)) == expected
    assert worst_label(measured).label == expected[0]


@for_each("count", [25, 48, 60, 300])
@for_each("place", [0, 1, 12, 20, -3, -2, -1])
def test_a_single_dip_is_not_lost_from_the_shape(count, place):
    values = [1.0] * count
    values[place] = 0.0
    assert min(outline(column(values)).shape) == 0.0


@pytest.mark.parametrize("peak", [30, 31, 62, 97])
def test_the_top_of_a_rise_that_ends_at_once_is_not_lost(peak):
    values = [float(step) if step <= peak else 0.0 for step in range(100)]
    assert max(outline(column(values)).shape) == peak
