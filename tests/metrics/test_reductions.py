"""What metrics are reduced by, against definitions of one line, on any values."""

import math
from statistics import median

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ckaudit.metrics.reductions import row_medians, running_medians
from ckaudit.run.series import Series, root_sum_square

NUMBERS = st.floats(-1e100, 1e100) | st.sampled_from([0.0, -0.0, 1e-300, 1.0, 1.0, 2.0])
CELLS = NUMBERS | st.sampled_from([math.nan, math.inf, -math.inf])


@given(st.integers(0, 6).flatmap(lambda width: arrays(float, st.tuples(st.integers(1, 6), st.just(width)), elements=CELLS)))
def test_the_median_of_a_row_is_that_of_its_finite_cells(values):
    expected = [
        median(known) if (known := [cell for cell in row if math.isfinite(cell)]) else math.nan for row in values.tolist()
    ]
    np.testing.assert_allclose(row_medians(values), expected, rtol=1e-15)


@given(arrays(float, st.integers(1, 30), elements=NUMBERS), st.integers(1, 9))
def test_a_running_median_is_that_of_each_window(values, window):
    window = min(window, len(values))
    expected = [median(values[start : start + window].tolist()) for start in range(len(values) - window + 1)]
    np.testing.assert_allclose(running_medians(values, window), expected, rtol=1e-15)


@st.composite
def grouped_tables(draw):
    steps, width = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    recorded = draw(arrays(bool, (steps, width)))
    values = draw(arrays(float, (steps, width), elements=st.floats(-1e6, 1e6) | st.just(math.nan)))
    groups = draw(st.lists(st.sampled_from(["a", "b", None]), min_size=width, max_size=width))
    labels = tuple(f"t{place}" for place in range(width))
    return Series("x", "1", np.arange(steps), labels, np.where(recorded, values, np.nan), recorded), groups


@given(grouped_tables())
def test_a_group_is_the_root_of_the_squares_of_all_members_that_ever_were_recorded(case):
    series, groups = case
    found = series.grouped(groups, root_sum_square)
    assert list(found.labels) == list(dict.fromkeys(group for group in groups if group))
    for column, name in enumerate(found.labels):
        for row in range(len(series.steps)):
            members = [place for place, group in enumerate(groups) if group == name and series.recorded[: row + 1, place].any()]
            there = bool(members) and bool(series.recorded[row, members].all())
            assert bool(found.recorded[row, column]) is there
            if there:
                expected = math.sqrt(sum(float(series.values[row, place]) ** 2 for place in members))
                np.testing.assert_allclose(found.values[row, column], expected, rtol=1e-12)


@given(st.lists(st.text(max_size=2), min_size=1, max_size=12))
def test_places_are_where_labels_stand_first(labels):
    width = len(labels)
    series = Series("x", "1", np.arange(1), tuple(labels), np.zeros((1, width)), np.ones((1, width), bool))
    assert series.places == {label: labels.index(label) for label in labels}
