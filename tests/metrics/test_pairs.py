import numpy as np

from ckaudit.metrics.pairs import filled, in_order, ratio, relabelled, together, total
from ckaudit.run.series import empty
from tests.metrics.samples import NAN, cells, close, table


def test_together_keeps_shared_steps_and_labels_in_the_order_of_the_first():
    first, second = together(table({1: {"a": 1, "b": 2}, 3: {"a": 3, "b": 4}}), table({3: {"c": 0, "b": 7, "a": 8}, 4: {"a": 9}}))
    assert first.labels == second.labels == ("a", "b")
    assert (first.steps.tolist(), second.steps.tolist()) == ([3], [3])
    assert (first.values.tolist(), second.values.tolist()) == ([[3, 4]], [[8, 7]])


def test_together_with_nothing_is_nothing():
    for pair in (together(table({1: {"a": 1}}), empty("x")), together(empty("x"), table({1: {"a": 1}}))):
        assert [part.values.size for part in pair] == [0, 0]


def test_a_step_that_stands_twice_pairs_row_by_row_or_with_the_last():
    twice = table({1: {"a": 1.0}, 2: {"a": 2.0}, 3: {"a": 6.0}})
    twice.steps[:] = [1, 2, 2]
    assert ratio(twice, twice).values.ravel().tolist() == [1.0, 1.0, 1.0]
    assert cells(ratio(table({2: {"a": 12.0}}), twice)) == {(2, "a"): 2.0}
    assert ratio(twice, table({2: {"a": 2.0}})).values.ravel().tolist() == [1.0, 3.0]


def test_ratio_keeps_nan_apart_from_not_recorded():
    part = table({1: {"a": 1.0, "b": NAN, "c": 1.0, "d": 1.0}, 2: {"a": 1.0}})
    whole = table({1: {"a": 2.0, "b": 2.0, "c": 0.0, "d": NAN}, 2: {"b": 1.0}})
    assert close(cells(ratio(part, whole)), {(1, "a"): 0.5, (1, "b"): NAN, (1, "d"): NAN})


def test_filled_takes_the_second_only_where_the_first_is_not_recorded():
    first = table({2: {"a": NAN}, 4: {"a": 4.0, "b": 5.0}})
    second = table({1: {"b": 1.0}, 2: {"a": 9.0, "c": 9.0}, 4: {"b": 9.0}})
    found = filled(first, second)
    assert close(cells(found), {(1, "b"): 1.0, (2, "a"): NAN, (2, "c"): 9.0, (4, "a"): 4.0, (4, "b"): 5.0})
    assert found.labels == ("a", "b", "c")


def test_total_is_the_root_of_squares_where_everything_is_there():
    assert cells(total(table({1: {"a": 3.0, "b": 4.0}, 2: {"a": 1.0}}), "all")) == {(1, "all"): 5.0}
    assert not total(empty("x"), "all")


def test_columns_can_be_ordered_and_renamed():
    series = table({1: {"a": 1.0, "b": 2.0}})
    assert np.array_equal(in_order(series, ["b", "a"]).values, [[2.0, 1.0]])
    assert relabelled(series, "x").labels == ("a", "b")
    assert relabelled(series.only("b".__eq__), "x").labels == ("x",)
