import numpy as np
import pytest

from ckaudit.metrics.medians import median_of


@pytest.mark.parametrize("size", [1, 2, 3, 50, 51, 5000])
def test_it_is_numpys_to_the_bit(size):
    for seed in range(20):
        values = np.random.default_rng(seed).normal(size=size)
        assert median_of(values) == np.median(values)


def test_nan_and_nothing_have_no_median_and_infinities_have():
    assert np.isnan(median_of(np.array([1.0, np.nan, 2.0])))
    assert np.isnan(median_of(np.array([])))
    assert median_of(np.array([np.inf, 1.0, -np.inf])) == 1.0
