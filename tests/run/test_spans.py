import numpy as np
import pytest

from ckaudit.run.spans import spans
from tests.metrics.samples import NAN, column, table


def found(series, mask, **more):
    return [(span.label, span.first, span.last, span.points) for span in spans(series, mask, **more)]


def runs_of(values, limit):
    """Return the runs of cells above `limit` by walking over them; cells that are no number are passed over."""
    result, current = [], []
    for step, value in enumerate(values, 1):
        if value is None or value != value:
            continue
        if value > limit:
            current.append(step)
        elif current:
            result.append(("x", current[0], current[-1], len(current)))
            current = []
    return result + ([("x", current[0], current[-1], len(current))] if current else [])


@pytest.mark.parametrize("seed", range(5))
def test_against_a_walk_over_the_cells(seed):
    rng = np.random.default_rng(seed)
    values = [None if kind == 0 else NAN if kind == 1 else float(kind) for kind in rng.integers(0, 8, 60)]
    series = column(values)
    assert found(series, series.values > 4) == runs_of(values, 4)


def test_labels_come_in_order_and_apart():
    series = table({1: {"b": 9.0, "a": 9.0}, 2: {"b": 0.0, "a": 9.0}, 3: {"b": 9.0, "a": 0.0}})
    assert found(series, series.values > 1) == [("b", 1, 1, 1), ("b", 3, 3, 1), ("a", 1, 2, 2)]


def test_short_runs_can_be_passed_over():
    series = column([9.0, 0.0, 9.0, 9.0, 0.0, 9.0, 9.0, 9.0])
    assert found(series, series.values > 1, min_points=2) == [("x", 3, 4, 2), ("x", 6, 8, 3)]


def test_among_says_which_cells_count():
    series = column([1.0, NAN, NAN, 1.0, None, NAN])
    assert found(series, series.nonfinite) == []
    assert found(series, series.nonfinite, among=series.recorded) == [("x", 2, 3, 2), ("x", 6, 6, 1)]


def test_worst_is_the_greatest_badness_inside():
    series = column([0.0, 5.0, 9.0, 7.0, 0.0, 50.0], steps=[10, 20, 30, 40, 50, 60])
    first = next(spans(series, series.values > 1))
    assert first.worst(series.values) == (30, 9.0)
    assert first.worst(-series.values) == (20, -5.0)


def test_nothing_has_no_spans():
    series = column([None, NAN])
    assert found(series, np.ones((2, 1), bool)) == []
