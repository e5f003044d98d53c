"""Bands of noise, against what many simulated replicas do."""

import numpy as np
import pytest

from ckaudit.diff.noise import quantile, stretch_size, stretches

TABLE = {0.2: (1.638, 1.476, 1.372), 0.05: (3.182, 2.571, 2.228), 0.01: (5.841, 4.032, 3.169)}
"""Printed quantiles of Student's distribution for 3, 5 and 10 degrees of freedom."""


@pytest.mark.parametrize("share", TABLE)
def test_quantile_is_that_of_the_printed_table(share):
    assert [quantile(share, freedom) for freedom in (3, 5, 10)] == pytest.approx(TABLE[share], rel=0.04)


def _columns(seed, *, correlation=0.0, count=400):
    draw = np.random.default_rng(seed)
    made = []
    for _ in range(2):
        noise = draw.normal(0, 1, count)
        for row in range(1, count):
            noise[row] = correlation * noise[row - 1] + np.sqrt(1 - correlation**2) * noise[row]
        made.append(10 - np.linspace(0, 3, count) + noise)
    return made


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_spread_is_that_of_simulated_replicas(correlation):
    steps = np.arange(1, 401)
    found = [stretches(steps, *_columns(seed, correlation=correlation), seed=0.0, ahead=0.0) for seed in range(60)]
    actual = np.std([each.right - each.left for each in found])
    said = np.median([each.spread for each in found])
    assert said == pytest.approx(actual, rel=0.25)


def test_noise_that_both_share_cancels_but_for_what_a_seed_does():
    steps, common = np.arange(1, 401), np.random.default_rng(0).normal(0, 1, 400)
    own = np.random.default_rng(1).normal(0, 0.01, (2, 400))
    shared = stretches(steps, common + own[0], common + own[1], seed=0.0, ahead=0.0)
    apart = stretches(steps, common + own[0], -common + own[1], seed=0.0, ahead=0.0)
    assert np.median(shared.spread) < 0.03 * np.median(apart.spread)
    assert np.median(stretches(steps, common, common + own[0], seed=0.2, ahead=0.0).spread) > 0.2


def test_replicas_replace_the_residuals_the_more_there_are():
    steps, draw = np.arange(1, 401), np.random.default_rng(3)
    columns = [level + draw.normal(0, 0.1, 400) for level in draw.normal(0, 5, 12)]
    none, two, ten = (stretches(steps, columns[0], columns[1], columns[2 : 2 + count]) for count in (0, 2, 10))
    assert none.spread[-1] < 0.2
    assert none.spread[-1] < two.spread[-1] < 10
    expected = np.sqrt(2 * np.var([columns[0].mean(), *(each.mean() for each in columns[2:])], ddof=1) * 10 / 14)
    assert ten.spread[-1] == pytest.approx(expected, rel=0.1)
    assert (none.freedom, two.freedom, ten.freedom) == (np.inf, 6.0, 14.0)


def test_the_last_stretch_is_whole_and_stretches_share_no_point():
    found = stretches(np.arange(1, 108), np.arange(107.0), np.arange(107.0), size=25)
    assert found.last.tolist() == [32, 57, 82, 107]
    assert found.first.tolist() == [1, 33, 58, 83]


def test_few_points_are_stretches_of_their_own():
    assert [stretch_size(points) for points in (8, 19, 20, 400, 100_000)] == [1, 1, 5, 20, 50]
    found = stretches(np.array([1, 2]), np.array([1.0, 2.0]), np.array([1.0, 2.0]))
    assert np.isfinite(found.excess).all()


def test_a_run_that_breaks_down_does_not_widen_its_own_band():
    steps, draw = np.arange(1, 401), np.random.default_rng(5)
    calm, other = (3 - steps / 400 + draw.normal(0, 0.1, 400) for _ in range(2))
    wild = other + np.where((steps > 100) & (steps < 390), draw.normal(0, 30, 400), 0)
    usual, found = (stretches(steps, calm, each) for each in (other, wild))
    assert (found.spread < 3.5 * usual.spread).all()
    assert found.spread == pytest.approx(stretches(steps, wild, calm).spread)
    assert found.alone < 3.5 * usual.alone


def test_a_rounded_log_bounds_no_noise():
    steps, draw = np.arange(1, 401), np.random.default_rng(6)
    found = stretches(steps, np.full(400, 2.0), 2 + draw.normal(0, 0.1, 400))
    assert found.spread[-1] > 0.01
