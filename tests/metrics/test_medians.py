import numpy as np
import pytest

from ckaudit.metrics.reductions import over_past, row_medians
from ckaudit.run.medians import median, medians_of_parts, medians_of_three
from ckaudit.run.series import single


@pytest.mark.parametrize("size", [1, 2, 3, 50, 51, 5000])
def test_it_is_numpys_to_the_bit(size):
    for seed in range(20):
        values = np.random.default_rng(seed).normal(size=size)
        assert median(values) == np.median(values)


def test_nan_and_nothing_have_no_median_and_infinities_have():
    assert np.isnan(median(np.array([1.0, np.nan, 2.0])))
    assert np.isnan(median(np.array([])))
    assert median(np.array([np.inf, 1.0, -np.inf])) == 1.0


def test_the_past_of_a_cell_is_the_median_the_finite_ones_before_it():
    values = np.random.default_rng(0).lognormal(size=130)
    values[[3, 60]] = np.nan
    series = single("a", "1", np.arange(130), values)
    slow = []
    for row in range(130):
        before = [each for each in values[:row] if np.isfinite(each)][-50:]
        slow.append(values[row] / np.median(before) if len(before) >= 5 and np.isfinite(values[row]) else np.nan)
    np.testing.assert_allclose(over_past(series, 5)[:, 0], slow, rtol=1e-12)


def test_what_grows_with_the_steps_is_held_against_the_last_nine_tenths_of_them():
    steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
    series = single("x", "1", steps, [float(step) for step in steps])
    slow = [np.nan] + [step / np.median([s for s in steps if step / 10 <= s < step]) for step in steps[1:]]
    np.testing.assert_allclose(over_past(series, 1, reach=0.1)[:, 0], slow)
    assert max(slow[1:]) <= 5 < 1000 / np.median(steps[:-1])


def test_where_no_later_cell_is_left_the_last_one_counts():
    series = single("x", "1", [1, 100, 10_000], [1.0, 2.0, 6.0])
    assert over_past(series, 1, reach=0.1)[1:, 0].tolist() == [2.0, 3.0]


def test_a_row_of_infinities_has_no_median():
    assert np.isnan(row_medians(np.array([[np.inf, np.nan]]))).all()


@pytest.mark.parametrize("count", [1, 2, 3, 7, 12, 24])
@pytest.mark.parametrize("length", [24, 25, 47, 100])
def test_medians_of_parts_are_those_of_numpy(count, length):
    values = np.random.default_rng(length).normal(size=length)
    assert medians_of_parts(values, count).tolist() == [np.median(part) for part in np.array_split(values, count)]


@pytest.mark.parametrize("length", range(1, 9))
def test_a_point_and_its_neighbours_have_the_median_numpy(length):
    values = np.random.default_rng(length).normal(size=length)
    around = [values[max(0, row - 1) : row + 2] for row in range(length)]
    assert medians_of_three(values).tolist() == [np.median(each) for each in around]
