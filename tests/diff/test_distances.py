"""Distances of distributions, grids and rankings, against samples and slow loops."""

import math

import numpy as np
import pytest

from ckaudit.diff.distances import (
    Distribution,
    distribution,
    expected_stability_index,
    rank_correlation,
    relative_distance,
    stability_index,
    wasserstein,
)


def histogram(values: np.ndarray, bins: int) -> Distribution:
    counts, edges = np.histogram(values, bins=bins)
    made = distribution({"bins": edges.tolist(), "counts": counts.tolist()})
    assert made is not None
    return made


def drawn(density: Distribution, source: np.random.Generator, count: int = 200_000) -> np.ndarray:
    """Draw values that are spread evenly inside each bin."""
    shares, edges = np.diff(density.below), np.asarray(density.edges)
    which = source.choice(len(shares), size=count, p=shares / shares.sum())
    return edges[which] + source.uniform(size=count) * np.diff(edges)[which]


@pytest.mark.parametrize(("shift", "scale", "bins"), [(0.0, 1.0, 16), (0.7, 1.0, 23), (0.1, 2.5, 32), (40.0, 0.1, 8)])
def test_wasserstein_is_that_of_samples(shift: float, scale: float, bins: int) -> None:
    source = np.random.default_rng(0)
    left, right = histogram(source.normal(size=4000), 16), histogram(source.normal(shift, scale, size=3000), bins)
    pairs = np.sort(drawn(left, source)) - np.sort(drawn(right, source))  # in one dimension the best plan keeps the order
    expected = float(np.abs(pairs).mean())
    assert wasserstein(left, right) == pytest.approx(expected, rel=0.02, abs=0.005)


def test_wasserstein_is_that_of_a_fine_sum() -> None:
    left = distribution({"bins": [0.0, 1.0, 4.0], "counts": [3, 1]})
    right = distribution({"bins": {"range": [-1.0, 3.0], "count": 2}, "counts": [1, 4]})
    assert left is not None
    assert right is not None
    x = np.linspace(-2, 5, 700_001)
    f, g = np.interp(x, left.edges, left.below), np.interp(x, right.edges, right.below)
    assert wasserstein(left, right) == pytest.approx(float(np.trapezoid(np.abs(f - g), x)), rel=1e-6)
    assert wasserstein(left, left) == 0.0
    assert wasserstein(left, right) == wasserstein(right, left)


def test_a_shift_is_its_own_distance_and_a_single_value_is_a_distribution() -> None:
    ones, twos = (distribution({"bins": {"range": [v, v], "count": 4}, "counts": [0, 0, 0, 9]}) for v in (1.0, 2.0))
    assert ones is not None
    assert twos is not None
    assert wasserstein(ones, twos) == pytest.approx(1.0)
    assert ones.spread() == pytest.approx(0.0, abs=1e-9)


def test_the_spread_is_that_of_an_even_density() -> None:
    made = distribution({"bins": [0.0, 1.0, 3.0], "counts": [1, 3]})
    assert made is not None
    sample = drawn(made, np.random.default_rng(1), 400_000)
    assert made.spread() == pytest.approx(float(sample.std()), rel=5e-3)


def test_centres_stand_for_the_bins_around_them() -> None:
    made = distribution({"bins": [0.5, 1.5, 2.5], "counts": [1, 2, 1]})
    assert made is not None
    assert list(made.edges) == [0.0, 1.0, 2.0, 3.0]
    assert list(made.below) == [0.0, 0.25, 0.75, 1.0]


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"bins": [0, 1], "counts": [0]},
        {"bins": [0, "NaN"], "counts": [3]},
        {"bins": 5, "counts": [1]},
        {"bins": [1.0, 0.0, 2.0], "counts": [1, 1]},
        {"bins": [0.0, 1.0, 2.0, 3.0, 4.0], "counts": [1, 1]},
        {"bins": {"range": [0, 1]}, "counts": [1]},
        {"bins": [0.0, 1.0, 2.0], "counts": [2, -1]},
    ],
)
def test_what_is_no_histogram_is_none(wrong: dict[str, object]) -> None:
    assert distribution(wrong) is None


def test_the_stability_index_is_that_of_decile_bins() -> None:
    source = np.random.default_rng(2)
    left, right = source.normal(size=100_000), source.normal(0.4, 1.2, size=100_000)
    cuts = np.quantile(left, np.arange(1, 10) / 10)
    p, q = (np.bincount(np.searchsorted(cuts, each), minlength=10) / len(each) for each in (left, right))
    expected = float(np.sum((q - p) * np.log(q / p)))
    assert stability_index(histogram(left, 400), histogram(right, 400)) == pytest.approx(expected, rel=0.02)


def test_the_stability_index_of_bins_that_miss_each_other_is_finite() -> None:
    left, right = histogram(np.linspace(0, 1, 100), 10), histogram(np.linspace(5, 6, 100), 10)
    floor = 1e-4
    expected = 9 * (floor - 0.1) * math.log(floor / 0.1) + 0.9 * math.log(10)
    assert stability_index(left, right) == pytest.approx(expected)
    assert stability_index(left, left) == pytest.approx(0.0, abs=1e-12)


def test_chance_makes_an_index_of_its_own() -> None:
    source = np.random.default_rng(3)
    found = [
        stability_index(histogram(source.normal(size=1000), 100), histogram(source.normal(size=1000), 100)) for _ in range(200)
    ]
    density = histogram(source.normal(size=1000), 100)
    assert expected_stability_index(density, density) == pytest.approx(9 * 2 / 1000)
    assert float(np.mean(found)) == pytest.approx(expected_stability_index(density, density), rel=0.2)


def test_relative_distance_is_numpys() -> None:
    source = np.random.default_rng(4)
    a, b = source.normal(size=(32, 32)), source.normal(size=(32, 32))
    expected = np.linalg.norm(a - b) / np.linalg.norm(a)
    assert relative_distance(a.ravel().tolist(), b.ravel().tolist()) == pytest.approx(float(expected))
    assert relative_distance([0.0, 0.0], [0.0, 0.0]) == 0.0
    assert relative_distance([0.0], [1.0]) == math.inf


@pytest.mark.parametrize("ties", [False, True])
def test_rank_correlation_is_that_of_ranks_counted_one_by_one(ties: bool) -> None:
    source = np.random.default_rng(5)
    x, y = source.normal(size=50), source.normal(size=50)
    if ties:
        x, y = np.round(x), np.round(y)
    ranks = [[(each < value).sum() + ((each == value).sum() + 1) / 2 for value in each] for each in (x, y)]
    assert rank_correlation(x.tolist(), y.tolist()) == pytest.approx(float(np.corrcoef(*ranks)[0, 1]))


def test_rank_correlation_of_nothing_to_rank_is_none() -> None:
    assert rank_correlation([1.0, 2.0], [2.0, 1.0]) is None
    assert rank_correlation([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None
