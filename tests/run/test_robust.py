"""Few points, held against what is known of them by construction."""

import numpy as np
import pytest

from ckaudit.run.robust import begins_with_its_run, difference_noise, fall_of, lone_peaks, sustained_rise

LENGTHS = (5, 7, 10, 15, 20, 30, 49, 50, 100, 1_000)


def _falling(count, rng, noise=0.03):
    return (2 + 6 * np.arange(1, count + 1) ** -0.5) * (1 + noise * rng.standard_normal(count))


@pytest.mark.parametrize("count", [30, 300])
def test_noise_is_that_of_the_generator_whatever_the_trend(count):
    rng = np.random.default_rng(1)
    found = [difference_noise(np.linspace(9, 1, count) + 0.1 * rng.standard_normal(count)) for _ in range(200)]
    assert np.mean(found) == pytest.approx(0.1, rel=0.1)


def test_a_jump_is_no_noise():
    rng = np.random.default_rng(2)
    values = 0.1 * rng.standard_normal(100)
    assert difference_noise(values + 50 * (np.arange(100) > 60)) == pytest.approx(difference_noise(values), rel=0.2)


@pytest.mark.parametrize("count", LENGTHS)
@pytest.mark.parametrize("shape", ["climb", "jump"])
def test_a_loss_that_ends_twice_as_high_is_found_at_every_length(count, shape):
    rng, found = np.random.default_rng(count), 0
    for _ in range(100):
        values = _falling(count, rng)
        tail = count - count // 2
        level = values[count // 2 - 1]
        values[count // 2 :] = (
            level * (np.linspace(1.3, 3, tail) if shape == "climb" else 2.0) * (1 + 0.03 * rng.standard_normal(tail))
        )
        found += sustained_rise(values) is not None
    assert found >= 97


@pytest.mark.parametrize("count", LENGTHS)
@pytest.mark.parametrize("noise", [0.01, 0.03, 0.1])
def test_a_falling_loss_hardly_ever_seems_to_rise(count, noise):
    rng = np.random.default_rng(count)
    assert sum(sustained_rise(_falling(count, rng, noise)) is not None for _ in range(300)) <= 6


def test_the_rise_says_from_where_to_where():
    rise = sustained_rise(np.array([4.0, 3.0, 2.0, 2.0, 2.0, 2.0, 6.0, 6.0, 6.0, 6.0]))
    assert (rise.low, rise.end, rise.onset, rise.noise_is_known) == (2.0, 6.0, 6, True)


def test_values_around_zero_do_not_rise():
    rng = np.random.default_rng(5)
    assert not any(sustained_rise(0.02 * rng.standard_normal(30)) for _ in range(100))


def test_a_fall_is_held_against_its_error():
    assert fall_of(np.full(20, 10.8)).is_none
    assert not fall_of(np.linspace(10.8, 9, 20)).is_none
    assert fall_of(np.array([3.0, 2.0, 1.0])).first == 3.0


def test_a_log_that_begins_late_does_not_begin_with_its_run():
    assert not begins_with_its_run(np.arange(5_000, 6_000, 50))
    assert begins_with_its_run(np.arange(50, 1_000, 50))


def test_a_peak_stands_above_both_sides():
    values = np.full(20, 2.0)
    values[10] = 9.0
    assert lone_peaks(values).tolist() == [10]
    assert not len(lone_peaks(np.concatenate([np.full(10, 2.0), np.full(10, 9.0)])))
    assert not len(lone_peaks(np.linspace(9, 2, 20)))
