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
    estimated = np.median([each.spread for each in found])
    assert estimated == pytest.approx(actual, rel=0.25)


def test_noise_that_both_share_cancels_but_for_what_a_seed_does():
    steps, common = np.arange(1, 401), np.random.default_rng(0).normal(0, 1, 400)
    own = np.random.default_rng(1).normal(0, 0.01, (2, 400))
    shared = stretches(steps, common + own[0], common + own[1], seed=0.0, ahead=0.0)
    apart = stretches(steps, common + own[0], -common + own[1], seed=0.0, ahead=0.0)
    assert np.median(shared.spread) < 0.03 * np.median(apart.spread)
    assert np.median(stretches(steps, common, common + own[0], seed=0.2, ahead=0.0).spread) > 0.2


def _wide(seeds, noise=0.1, count=100):
    """Columns of one training whose levels differ by `seeds`, with the noise of a batch."""
    draw = np.random.default_rng(3)
    return [level + draw.normal(0, noise, count) for level in draw.normal(0, seeds, 12)]


def test_runs_that_lie_close_narrow_the_band_and_runs_that_lie_far_apart_widen_it():
    steps = np.arange(1, 101)
    for seeds, ratio in ((0.01, 0.4), (1.0, 2.0)):
        columns = _wide(seeds)
        one, many = (stretches(steps, columns[0], columns[1], columns[2 : 2 + count]).spread[-1] for count in (0, 8))
        assert (many < ratio * one) if ratio < 1 else (many > ratio * one)


def test_of_many_runs_the_band_is_that_of_their_own_spread():
    steps, columns = np.arange(1, 101), _wide(0.2)
    found = stretches(steps, columns[0], columns[1], columns[2:])
    levels = [columns[0].mean(), *(each.mean() for each in columns[2:])]
    assert found.left[-1] == pytest.approx(np.mean(levels), abs=0.06)
    assert found.spread[-1] == pytest.approx(np.std(levels, ddof=1) * np.sqrt(1 + 1 / 11), rel=0.35)
    assert (found.low[-1], found.high[-1]) == pytest.approx((min(levels), max(levels)), abs=0.15)


@pytest.mark.parametrize("seeds", [0.02, 0.1])
def test_a_second_good_run_makes_the_band_no_wider(seeds):
    """Over many draws: the loss that is found with two is found with one, and less so the other way round."""
    steps, bands = np.arange(1, 101), np.empty((2, 60))
    for turn in range(60):
        draw = np.random.default_rng(turn)
        columns = [level + draw.normal(0, 0.1, 100) for level in draw.normal(0, seeds, 3)]
        for count in (0, 1):
            bands[count, turn] = stretches(steps, columns[0], columns[1], columns[2 : 2 + count]).spread[-1]
    assert np.median(bands[1]) < 0.95 * np.median(bands[0])


def test_what_a_seed_may_do_shrinks_with_the_root_of_the_steps():
    draw = np.random.default_rng(2)
    left, right = draw.normal(0, 0.1, (2, 100))
    short, long = (stretches(steps, left, right, ahead=0.0).spread[-1] for steps in (np.arange(1, 101), np.arange(1, 101) * 100))
    assert 2 < short / long < 10


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
