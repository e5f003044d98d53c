"""Few points, held against what is known of them by construction; departures; how finely a log was rounded."""

import numpy as np
import pytest

from ckaudit.run.falls import fall_would_show, flat_fall, largest_fall, never_falls, smallest_visible_fall
from ckaudit.run.rises import falls_on, sustained_rise
from ckaudit.run.robust import (
    begins_with_its_run,
    bfloat16_step,
    decimal_step,
    deviations_from_past,
    difference_noise,
    looks_like_a_score,
    rank_trend,
    resolution,
    wilson_interval,
)
from ckaudit.run.series import single
from ckaudit.run.spikes import passing_peaks
from tests.loops import for_each

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


@for_each("count", LENGTHS)
@for_each("noise", [0.01, 0.03, 0.1])
def test_a_falling_loss_hardly_ever_seems_to_rise(count, noise):
    rng = np.random.default_rng(count)
    assert sum(sustained_rise(_falling(count, rng, noise)) is not None for _ in range(100)) <= 3


def test_the_rise_says_from_where_to_where():
    rise = sustained_rise(np.array([4.0, 3.0, 2.0, 2.0, 2.0, 2.0, 6.0, 6.0, 6.0, 6.0]))
    assert (rise.low, rise.end) == pytest.approx((2.0, 6.0))
    assert (rise.onset, rise.noise_is_known) == (6, True)


def test_values_around_zero_do_not_rise():
    rng = np.random.default_rng(5)
    assert not any(sustained_rise(0.02 * rng.standard_normal(30)) for _ in range(100))


def test_the_largest_fall_is_that_of_the_best_split():
    values = np.array([5.0, 5.2, 4.9, 2.0, 2.1, 1.9])
    fall = largest_fall(values)
    assert (fall.first, fall.last) == (pytest.approx(values[:3].mean()), pytest.approx(values[3:].mean()))
    assert largest_fall(np.arange(10.0)).deviations <= 0


@for_each("count", LENGTHS)
@for_each("level", [1e-3, 10.8, 1e6])
def test_a_curve_that_never_falls_is_found_in_any_unit(count, level):
    rng = np.random.default_rng(count)
    assert sum(never_falls(level * (1 + 0.01 * rng.standard_normal(count))) is not None for _ in range(100)) >= 94


@pytest.mark.parametrize("count", [10, 20, 49, 100])
def test_a_curve_that_falls_by_half_is_not_flat(count):
    rng = np.random.default_rng(count)
    assert not any(never_falls(_falling(count, rng)) for _ in range(200))


def test_rank_trend_is_mann_kendalls():
    values = np.random.default_rng(3).standard_normal(12)
    score = sum(np.sign(values[late] - values[early]) for early in range(12) for late in range(early + 1, 12))
    assert rank_trend(values) == pytest.approx(np.sign(score) * (abs(score) - 1) / np.sqrt(12 * 11 * 29 / 18))
    assert rank_trend(np.ones(5)) == 0


def test_a_jump_that_falls_on_is_told_from_one_that_stays():
    before = np.linspace(4, 2, 20)
    for after, eased in ((3 - np.linspace(0, 0.8, 20), True), (np.full(20, 3.0), False)):
        values = np.concatenate([before, after])
        rise = sustained_rise(values)
        assert falls_on(values[rise.onset :], rise) is eased


@pytest.mark.parametrize(
    ("values", "is_score"),
    [
        (0.1 + 0.8 * (1 - np.exp(-np.arange(20) / 4)), True),
        (10 + 80 * (1 - np.exp(-np.arange(20) / 4)), True),
        (-20 + 60 * (1 - np.exp(-np.arange(20) / 4)), True),
        (np.linspace(2.4, 11, 20), False),
        (2.4 + 5 * (np.arange(20) > 9), False),
        (2 - np.linspace(0, 1, 20), False),
    ],
)
def test_an_accuracy_and_a_reward_rise_and_level_off(values, is_score):
    assert looks_like_a_score(values) is is_score


def test_a_log_that_begins_late_does_not_begin_with_its_run():
    assert not begins_with_its_run(np.arange(5_000, 6_000, 50))
    assert begins_with_its_run(np.arange(50, 1_000, 50))


def test_a_peak_stands_above_both_sides():
    values = np.full(20, 2.0)
    values[10] = 9.0
    assert passing_peaks(values) == [(10, 10, 2.0)]
    values[10:14] = 9.0
    assert passing_peaks(values) == [(10, 13, 2.0)]
    assert not passing_peaks(np.concatenate([np.full(10, 2.0), np.full(10, 9.0)]))
    assert not passing_peaks(np.linspace(9, 2, 20))
    assert not passing_peaks(np.array([0.1, -0.1, 0.9, -0.1, 0.1]))


@pytest.mark.parametrize("count", LENGTHS)
def test_the_point_at_which_a_walk_ends_does_not_seem_to_rise_more_often_than_it_did_before(count):
    rng, found = np.random.default_rng(count), 0
    for _ in range(100):
        waves = 2 + 0.3 * np.sin(np.arange(count) * 2 * np.pi / max(4, count / 6)) + 0.01 * rng.standard_normal(count)
        found += sustained_rise(waves) is not None and count >= 30
    assert found <= 5


def test_the_smallest_visible_fall_is_that_of_the_first_quarter_against_the_rest():
    rng = np.random.default_rng(0)
    found = [smallest_visible_fall(4 * (1 + 0.03 * rng.standard_normal(48))) for _ in range(50)]
    by_hand = 3.3 * (1 + 4 / 48) * 0.03 * (1 / 12 + 1 / 36) ** 0.5
    assert abs(np.median(found) / by_hand - 1) < 0.1
    assert smallest_visible_fall(np.full(10, 2.0)) == 0


def test_two_peaks_among_twelve_points_do_not_hide_each_other():
    values = np.array([4.0, 3.3, 3.0, 2.8, 2.7, 2.6, 7.6, 2.55, 2.5, 7.5, 2.45, 2.4])
    assert [(first, last) for first, last, _ in passing_peaks(values)] == [(6, 6), (9, 9)]


def test_noise_that_grows_with_the_loss_makes_no_peaks():
    rng = np.random.default_rng(1)
    found = [passing_peaks(2.3 * np.exp(-5 * np.linspace(0, 1, 49)) * np.exp(0.3 * rng.standard_normal(49))) for _ in range(100)]
    assert sum(map(bool, found)) <= 3


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.1])
@pytest.mark.parametrize("count", [5, 10, 48, 1000])
def test_a_curve_of_pure_noise_stands_at_any_noise_and_length(count, noise):
    rng = np.random.default_rng(count)
    assert sum(flat_fall(10.8 * (1 + noise * rng.standard_normal(count))) is not None for _ in range(200)) >= 190


@pytest.mark.parametrize("count", [10, 48, 1000])
def test_a_curve_that_halves_does_not_stand(count):
    rng, course = np.random.default_rng(count), np.linspace(0, 1, count)
    assert not any(flat_fall((1 - 0.5 * course) * (1 + 0.05 * rng.standard_normal(count))) for _ in range(100))


def test_a_curve_that_falls_and_comes_back_has_no_level():
    assert flat_fall(np.array([10.8, 8.9, 6.1, 5.0, 6.3, 8.2, 10.4, 11.0])) is None


def test_five_points_that_fall_one_after_the_other_do_not_stand():
    assert flat_fall(np.array([10.8, 10.4, 9.9, 9.7, 9.3])) is None
    assert flat_fall(np.array([10.8, 10.9, 10.8, 10.85, 10.8])) is not None


def test_a_log_that_falls_and_rests_does_not_stand():
    assert flat_fall(np.array([8.188, 6.493, 6.361, 6.054, 6.168])) is None


@pytest.mark.parametrize(("noise", "count", "shows"), [(0.01, 15, True), (0.1, 15, False), (0.03, 7, False), (0.03, 1000, True)])
def test_a_fall_of_a_twentieth_would_show_where_the_noise_is_small_or_the_points_are_many(noise, count, shows):
    rng = np.random.default_rng(count)
    found = [fall_would_show(2.3 * (1 + noise * rng.standard_normal(count)), 0.05) for _ in range(50)]
    assert sum(found) >= 46 if shows else sum(found) <= 12


def test_a_departure_is_measured_by_what_was_before():
    values = np.array([1.0, 2.0, 3.0, 2.0, 2.0, 20.0, 2.0])
    away, usual = deviations_from_past(single("x", "1", np.arange(7), values), min_deviation=0.1, history=5, k=6.0)
    deviation = 6 * 1.4826 * np.median(np.abs(values[:5] - 2.0))
    assert np.isnan(away[:5]).all()
    assert usual[5:, 0].tolist() == [2.0, 2.0]
    assert away[5, 0] == pytest.approx(18.0 / max(deviation, 0.1))
    assert away[6, 0] == 0.0


def test_a_quantity_that_never_moves_has_a_least_unit():
    away, _ = deviations_from_past(single("x", "1", np.arange(7), np.array([4.0] * 6 + [5.0])), min_deviation=0.5, relative=0.5)
    assert away[6, 0] == pytest.approx(1.0 / 2.0)


@pytest.mark.parametrize("decimals", range(7))
def test_rounded_numbers_show_their_decimals(decimals):
    values = np.round(np.random.default_rng(decimals).normal(3.0, 1.0, 200), decimals)
    assert resolution(values).min() == pytest.approx(10.0**-decimals)


def test_numbers_in_full_precision_have_no_decimals():
    values = np.random.default_rng(0).normal(3.0, 1.0, 1_000)
    assert (decimal_step(values) == 0).all()


@pytest.mark.parametrize("size", [1e-3, 0.3, 3.0, 700.0])
def test_a_bfloat16_is_as_far_from_the_next_as_torch_says(size):
    torch = pytest.importorskip("torch")
    numbers = torch.tensor([size, -size, size * 1.37]).bfloat16()
    away = torch.nextafter(numbers, torch.full_like(numbers, float("inf")) * numbers.sign())
    assert bfloat16_step(numbers.double().numpy()).tolist() == (away - numbers).abs().double().tolist()


def test_what_is_no_bfloat16_has_no_bfloat16_step():
    assert bfloat16_step(np.array([3.28, 0.0, 1e300, 1 + 2**-8])).tolist() == [0.0, 0.0, 0.0, 0.0]


def test_zero_is_short_in_decimals():
    assert resolution(np.array([0.0])).tolist() == [1.0]


def test_the_interval_of_a_share_is_the_published_one():
    """Newcombe 1998, Statistics in Medicine 17:857, table I, method 3: 81 of 263, 15 of 148, 0 of 20, 1 of 29."""
    published = {(81, 263): (0.2553, 0.3662), (15, 148): (0.0624, 0.1605), (0, 20): (0.0, 0.1611), (1, 29): (0.0061, 0.1718)}
    for (hits, of), ends in published.items():
        assert wilson_interval(hits, of) == pytest.approx(ends, abs=5e-5)
