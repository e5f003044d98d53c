import numpy as np
import pytest

from ckaudit.metrics.divergence import noise, rising_fit, valley


def test_rising_fit_is_the_highest_of_the_lowest_medians():
    rng = np.random.default_rng(0)
    for size in (1, 2, 5, 30):
        y = rng.normal(size=size)
        slow = [max(min(np.median(y[s : t + 1]) for t in range(i, size)) for s in range(i + 1)) for i in range(size)]
        assert rising_fit(y) == pytest.approx(slow)


def test_a_valley_falls_to_the_lowest_point_and_rises_from_there():
    values = np.random.default_rng(1).normal(size=60)
    found, lowest = valley(values), int(np.argmin(values))
    assert found[lowest] == values[lowest]
    assert (np.diff(found[: lowest + 1]) <= 0).all()
    assert (np.diff(found[lowest:]) >= 0).all()


@pytest.mark.parametrize("values", [[], [2.0], [3, 2, 1], [1, 2, 3], [9, 4, 1, 2, 8], [2, 2, 2], [3, 1, 1, 3]])
def test_what_is_a_valley_already_has_no_noise(values):
    assert noise(np.array(values, float)) == 0.0


def test_noise_is_near_the_deviation_that_made_it():
    slope = np.abs(np.linspace(-5, 5, 4_000))
    assert noise(slope + np.random.default_rng(0).normal(0, 0.1, 4_000)) == pytest.approx(0.1, rel=0.1)


def test_one_wild_point_hardly_changes_the_noise():
    values = np.random.default_rng(0).normal(3.0, 0.1, 100)
    calm = noise(values)
    values[30] = 500.0
    assert 0.05 < noise(values) < 1.5 * calm
