import math

import numpy as np
import pytest
from msgspec.structs import replace

from ckaudit.run.series import Series, at, empty, root_sum_square, single
from tests.metrics.samples import NAN, cells, close, column, table


def test_nan_and_not_recorded_are_two_things():
    series = column([1.0, NAN, None, math.inf])
    assert series.finite.ravel().tolist() == [True, False, False, False]
    assert series.nonfinite.ravel().tolist() == [False, True, False, True]
    assert series.points == 3


def test_a_series_is_true_where_anything_was_recorded():
    assert column([None, NAN])
    assert not column([None, None])
    assert not empty("x")


@pytest.mark.parametrize(("step", "count"), [(0, 0), (1, 1), (2, 1), (3, 2), (9, 3)])
def test_until_keeps_what_was_known(step, count):
    series = column([1.0, 2.0, 3.0], steps=[1, 3, 5])
    assert series.until(step).values.ravel().tolist() == [1.0, 2.0, 3.0][:count]


def test_until_keeps_all_rows_of_a_step_that_stands_twice():
    assert column([1.0, 2.0, 3.0], steps=[1, 2, 2]).until(2).points == 3


def test_mapped_leaves_what_is_not_recorded():
    found = column([4.0, None, NAN, -1.0]).mapped(np.sqrt, "root", "m")
    assert close(cells(found), {(1, "x"): 2.0, (3, "x"): NAN, (4, "x"): NAN})
    assert (found.name, found.unit) == ("root", "m")


def test_only_keeps_columns_in_their_order():
    series = table({1: {"b": 1.0, "a": 2.0, "c": 3.0}})
    assert series.only(lambda name: name != "a").labels == ("b", "c")
    assert series.only(lambda _: False).values.shape == (1, 0)


def test_recorded_rows_drop_empty_steps():
    assert column([None, 1.0, None, NAN]).recorded_rows().steps.tolist() == [2, 4]


def test_named_keeps_the_unit_unless_told():
    assert single("x", "s", np.array([1]), np.array([2.0])).named("y").unit == "s"
    assert single("x", "s", np.array([1]), np.array([2.0])).named("y", "ms").unit == "ms"


def test_grouped_reduces_members_in_order_of_first_appearance():
    series = table({1: {"b.x": 3.0, "skip": 9.0, "a.x": 1.0, "b.y": 4.0}})
    found = series.grouped(["b", None, "a", "b"], root_sum_square)
    assert (found.labels, found.values.tolist()) == (("b", "a"), [[5.0, 1.0]])


def test_grouped_needs_every_member_that_ever_was_recorded():
    rows = {1: {"x": 1.0, "y": 1.0}, 2: {"x": 1.0}, 3: {"x": NAN, "y": 1.0}}
    series = table(rows, labels=("x", "y", "never"))
    found = series.grouped(["g", "g", "g"], lambda values: values.sum(axis=1))
    assert close(cells(found), {(1, "g"): 2.0, (3, "g"): NAN})


def test_a_group_of_which_nothing_was_recorded_is_not_recorded():
    series = table({1: {"x": 1.0}}, labels=("x", "never"))
    assert cells(series.grouped(["a", "b"], root_sum_square)) == {(1, "a"): 1.0}


def test_root_sum_square_is_the_euclidean_norm():
    values = np.random.default_rng(0).normal(size=(4, 3))
    assert root_sum_square(values) == pytest.approx(np.linalg.norm(values, axis=1))


def test_at_looks_back_to_the_last_finite_value():
    series = table({2: {"a": 1.0, "b": 5.0}, 4: {"a": NAN}, 6: {"a": math.inf, "b": 7.0}, 8: {"a": 4.0}})
    steps = np.array([1, 2, 5, 7, 20])
    found = at(series, steps)
    expected_values, expected_age = [], []
    for step in steps:
        for label in ("a", "b"):
            past = [(s, v) for (s, name), v in cells(series).items() if name == label and s <= step and math.isfinite(v)]
            expected_values.append(past[-1][1] if past else NAN)
            expected_age.append(step - past[-1][0] if past else -1)
    assert np.array_equal(found.values.ravel(), expected_values, equal_nan=True)
    assert found.age.ravel().tolist() == expected_age


def test_at_takes_the_last_of_a_step_that_stands_twice():
    assert at(column([1.0, 2.0], steps=[3, 3]), np.array([3])).values.ravel().tolist() == [2.0]


def test_at_of_nothing_is_nothing():
    assert at(empty("x"), np.array([1, 2])).values.shape == (2, 0)
    assert at(column([None]), np.array([1])).age.tolist() == [[-1]]


def test_a_group_does_not_foresee_a_member_that_is_recorded_later():
    recorded = np.array([[True, False], [True, True], [True, False]])
    series = Series("norm", "1", np.array([1, 2, 3]), ("a", "b"), np.array([[3.0, np.nan], [3.0, 4.0], [3.0, np.nan]]), recorded)
    whole = series.grouped(["x", "x"], root_sum_square)
    assert whole.values.ravel()[:2].tolist() == [3.0, 5.0]
    assert whole.recorded.ravel().tolist() == [True, True, False]
    for step in (1, 2, 3):
        early = series.until(step).grouped(["x", "x"], root_sum_square)
        np.testing.assert_array_equal(early.values, whole.until(step).values)


def test_places_are_those_of_the_first_of_each_label():
    series = Series("x", "1", np.arange(2), ("b", "a", "b"), np.zeros((2, 3)), np.ones((2, 3), bool))
    assert series.places == {"b": 0, "a": 1}
    assert replace(series, labels=("c", "d", "e")).places == {"c": 0, "d": 1, "e": 2}
