import math
from itertools import permutations
from statistics import median

import numpy as np
import pytest

from ckaudit.metrics.trend import theil_sen


def trend(x, y, **more):
    return theil_sen(np.array(x, float), np.array(y, float), **more)


def test_slope_is_the_median_of_all_pairs():
    rng = np.random.default_rng(0)
    x, y = np.cumsum(rng.integers(1, 9, 40)).tolist(), rng.normal(size=40).tolist()
    slopes = [(y[j] - y[i]) / (x[j] - x[i]) for i in range(40) for j in range(i + 1, 40)]
    assert trend(x, y).slope == pytest.approx(median(slopes))


def test_slope_ignores_a_quarter_of_wild_points():
    y = [2.0 * step for step in range(20)]
    y[3], y[8], y[12], y[17] = 1e6, -1e6, 1e6, -1e6
    assert trend(range(20), y).slope == pytest.approx(2.0, abs=0.2)


def test_points_that_are_not_finite_are_left_out():
    found = trend([0, 1, 2, 3], [0.0, math.nan, math.inf, 6.0])
    assert (found.slope, found.points) == (2.0, 2)


@pytest.mark.parametrize(("x", "y"), [([], []), ([1], [2]), ([3, 3, 3], [1, 2, 3])])
def test_no_two_steps_apart_make_no_slope(x, y):
    found = trend(x, y)
    assert math.isnan(found.slope)
    assert found.p == 1.0


def test_a_constant_has_no_slope_and_is_no_news():
    found = trend(range(9), [4.0] * 9)
    assert (found.slope, found.p) == (0.0, 1.0)


def test_repeated_steps_are_no_trouble():
    assert trend([1, 1, 2, 2, 3], [1, 1, 2, 2, 3]).slope == 1.0


@pytest.mark.parametrize("y", [(0, 1, 2, 3, 4, 5, 6), (1, 0, 2, 4, 3, 6, 5), (3, 5, 0, 1, 6, 2, 4), (6, 5, 3, 4, 2, 1, 0)])
def test_p_is_near_that_of_all_orders_of_the_points(y):
    def score(order):
        return abs(sum((b > a) - (b < a) for i, a in enumerate(order) for b in order[i + 1 :]))

    orders = list(permutations(range(7)))
    exact = sum(score(order) >= score(y) for order in orders) / len(orders)
    assert trend(range(7), y).p == pytest.approx(exact, abs=0.04)


def test_p_with_ties_is_near_that_of_all_orders_of_the_points():
    y, x = (0, 0, 1, 1, 1, 2, 3), (1, 1, 2, 3, 4, 5, 5)

    def score(order):
        pairs = [(i, j) for i in range(7) for j in range(i + 1, 7)]
        return abs(sum(((x[j] > x[i]) - (x[j] < x[i])) * ((order[j] > order[i]) - (order[j] < order[i])) for i, j in pairs))

    orders = list(permutations(y))
    exact = sum(score(order) >= score(y) for order in orders) / len(orders)
    assert trend(x, y).p == pytest.approx(exact, abs=0.02)


@pytest.mark.parametrize("x", [range(7), (1, 1, 2, 3, 4, 5, 5), (1, 1, 1, 2, 2, 2, 2)])
@pytest.mark.parametrize("y", [range(7), (0, 0, 1, 1, 1, 2, 3), (0, 0, 0, 0, 0, 1, 1)])
def test_p_rests_on_the_true_variance_of_the_score(x, y):
    def score(order):
        pairs = [(i, j) for i in range(7) for j in range(i + 1, 7)]
        return sum(((x[j] > x[i]) - (x[j] < x[i])) * ((order[j] > order[i]) - (order[j] < order[i])) for i, j in pairs)

    deviation = math.sqrt(np.mean([score(order) ** 2 for order in permutations(y)]))
    z = max(abs(score(y)) - 1, 0) / deviation
    assert trend(x, y).p == pytest.approx(math.erfc(z / math.sqrt(2)))


def test_noise_alone_is_called_a_trend_about_as_often_as_p_says():
    rng = np.random.default_rng(5)
    called = np.mean([theil_sen(np.arange(30.0), rng.normal(size=30)).p < 0.1 for _ in range(600)])
    assert 0.06 < called < 0.14


def test_long_series_are_thinned_and_keep_their_slope():
    found = trend(range(50_000), np.arange(50_000) * 0.5, max_points=200)
    assert (found.slope, found.points) == (0.5, 200)
