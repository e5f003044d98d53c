"""Waves and what only looks like one."""

import numpy as np
import pytest

from ckaudit.run.oscillation import oscillation

LENGTHS = (20, 49, 50, 100, 1_000)


def wave(count, cycles, *, swing=0.3, noise=0.02, seed=0):
    """Return a sine of so many cycles around 2."""
    rng = np.random.default_rng(seed)
    return 2 * (1 + swing * np.sin(2 * np.pi * cycles * np.arange(count) / count + 1) + noise * rng.standard_normal(count))


@pytest.mark.parametrize("count", LENGTHS)
@pytest.mark.parametrize("cycles", [3.5, 5, 7.3])
def test_a_wave_is_found_at_every_length_with_its_cycles(count, cycles):
    found = oscillation(wave(count, cycles))
    assert found is not None
    assert found.cycles == pytest.approx(cycles, abs=1.0)
    assert 1.2 < found.low < 1.7 < 2.3 < found.high < 2.8


@pytest.mark.parametrize("count", [6, 20, 49, 50, 60, 100, 200, 600])
def test_three_swings_in_a_row_are_found_however_many_points_draw_them(count):
    found = oscillation(np.interp(np.linspace(0, 5, count), range(6), [5.1, 3.9, 3.2, 3.8, 2.9, 3.6]))
    assert found is not None
    assert found.high > 3.7


def test_a_wave_that_is_faster_than_the_first_parts_is_counted_at_finer_ones():
    found = oscillation(wave(400, 16))  # 24 parts of 17 points show 8 cycles
    assert found is not None
    assert found.cycles == pytest.approx(16, abs=1.0)
    assert found.low < 1.6
    assert found.high > 2.4


@pytest.mark.parametrize("count", LENGTHS)
def test_noise_is_no_wave(count):
    rng = np.random.default_rng(count)
    assert sum(oscillation(2 * (1 + 0.15 * rng.standard_normal(count))) is not None for _ in range(300)) <= 4


@pytest.mark.parametrize(
    "values",
    [
        wave(50, 5) * np.linspace(3, 1, 50),  # it comes down all the while
        wave(50, 5, swing=0.05, noise=0.0),  # too little to matter
        wave(50, 1.2),  # a valley
        np.linspace(5, 1, 50),
        np.array([5.1, 3.9, 3.1, 2.7, 2.5, 2.4]),
        np.array([2.0, 3.0, 2.0]),
    ],
)
def test_what_comes_down_or_hardly_swings_is_no_wave(values):
    assert oscillation(values) is None


def test_six_points_that_swing_widely_are_one():
    found = oscillation(np.array([5.1, 3.9, 3.2, 3.8, 2.9, 3.6]))
    assert (found.first, found.low, found.high) == (2, 2.9, 3.8)
