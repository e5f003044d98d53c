"""Elements by rank and counts below edges, against sorting all of a sample; quantiles and histograms against NumPy's."""

import numpy as np
import pytest

from ckaudit.recorder.stats.quantiles import Segments, select, spread_of

LEVELS = (0, 1, 5, 25, 50, 75, 95, 99, 100)


def samples(dtype):
    """Samples of all shapes that make buckets uneven, by name."""
    numbers = np.random.default_rng(0)
    largest, tiny = np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal
    outlier = numbers.normal(size=5_000)
    outlier[77] = 1e30
    found = {
        "one": [-2.5],
        "two": [3.0, 1.0],
        "three of them equal": [1.0, 1.0, 1.0, 2.0],
        "small": numbers.normal(size=130),
        "usual": numbers.normal(size=16_384),
        "of exactly one group": numbers.normal(size=2**15),
        "a million": numbers.normal(size=10**6),
        "in order": np.arange(3_000) / 7,
        "in reverse": -np.arange(3_000) / 7,
        "one outlier": outlier,
        "heavy tails": numbers.standard_cauchy(20_000),
        "many magnitudes": numbers.choice([-1.0, 1.0], 9_000) * 10.0 ** numbers.uniform(-37, 37, 9_000),
        "half of them zero": np.maximum(numbers.normal(size=10_000), 0),
        "two values": numbers.integers(0, 2, 4_000),
        "few values": np.round(numbers.normal(size=4_000), 1),
        "all equal": np.full(1_000, 0.1),
        "both zeros": np.where(numbers.integers(0, 2, 2_000), -0.0, 0.0),
        "zeros of both signs among others": numbers.normal(size=2_000) * numbers.integers(-1, 2, 2_000),
        "denormals": numbers.integers(-900, 900, 5_000) * tiny,
        "neighbours": 1e6 + numbers.integers(0, 5, 3_000) * np.spacing(dtype(1e6)),
        "far from zero": 1e4 + numbers.normal(size=3_000),
    }
    narrow = {name: np.asarray(values, np.float64).astype(dtype) for name, values in found.items()}
    return {**narrow, "apart beyond the type": (numbers.uniform(-1, 1, 3_000) * largest).astype(dtype)}


@pytest.fixture(scope="module", params=[np.float32, np.float64], ids=["float32", "float64"])
def given(request):
    return samples(request.param)


def agree(each):
    """Select from samples at once, with edges on elements and between them, and compare with each one sorted."""
    sorts, numbers = [np.sort(values) for values in each], np.random.default_rng(1)
    ranks = np.array([[0, values.size - 1, *numbers.integers(0, values.size, 6)] for values in sorts])
    edges = np.array([[*numbers.choice(values, 5), *np.quantile(values / 4, numbers.random(5)) * 4] for values in sorts], float)
    edges = np.concatenate([edges, np.nextafter(edges, np.inf), np.full((len(each), 1), -np.inf)], 1)
    at, below = select(Segments.of(each), ranks, edges)
    for row, values in enumerate(sorts):
        np.testing.assert_array_equal(at[row], values[ranks[row]])
        assert below[row].tolist() == values.astype(np.float64).searchsorted(edges[row]).tolist()


def test_each_sample_alone_is_as_if_sorted(given):
    for values in given.values():
        agree([values])


def test_samples_together_are_as_if_each_were_sorted(given):
    agree([*given.values()])


def test_many_small_samples_are_as_if_each_were_sorted():
    numbers = np.random.default_rng(2)
    agree([numbers.normal(size=size).astype(np.float32) for size in numbers.integers(1, 40, 3_000)])


def test_samples_of_two_types_keep_their_elements():
    agree([np.array([0.1, 0.3, 0.2], np.float32), np.array([0.1, 0.3, 0.2])])


def test_quantiles_and_histograms_are_those_of_numpy(given):
    # NumPy makes no bins of values that are all equal, closer to each other than bins, or further apart than any number.
    given = {name: values for name, values in given.items() if np.unique(edges_of(values)).size == 17}
    quantiles, histograms = spread_of([*given.values()], LEVELS)
    for name, found, histogram in zip(given, quantiles, histograms, strict=True):
        wide = given[name].astype(np.float64)
        np.testing.assert_allclose(found, np.percentile(wide, LEVELS), rtol=1e-12, atol=0, err_msg=name)
        assert histogram.counts == np.histogram(wide, 16)[0].tolist(), name


def edges_of(values):
    with np.errstate(all="ignore"):
        return np.linspace(*values[[values.argmin(), values.argmax()]].astype(np.float64), 17)


def test_nothing_is_selected_of_nothing():
    assert spread_of([], LEVELS) == ([], [])
    quantiles, histograms = spread_of([np.zeros(0), np.ones(1), np.zeros(0, np.float32)], (50,))
    assert np.isnan([quantiles[0], quantiles[2]]).all()
    assert quantiles[1] == [1.0]
    assert [each and sum(each.counts) for each in histograms] == [None, 1, None]
