"""Shapes of playbooks: each is seen at every length, and what is healthy shows none of them."""

import numpy as np
import pytest

from ckaudit.run.curve_shapes import hump, lasting_fall, lasting_rise, lasting_turn, shift, slide, spike, surge, warms_up_again
from tests.loops import for_each

LENGTHS = (6, 15, 24, 60, 600, 5000)


def curve(points, *shape, noise=0.0, seed=0):
    values = np.interp(np.linspace(0, len(shape) - 1, points), np.arange(len(shape)), shape)
    return values * (1 + noise * np.random.default_rng(seed).standard_normal(points))


@pytest.mark.parametrize("points", LENGTHS)
def test_a_step_up_or_down_that_lasts(points):
    step = np.where(np.arange(points) < points // 2, 10.0, 20.0)
    up, down = lasting_rise(step, share=0.3), lasting_fall(30.0 - step, share=0.3)
    assert (up.before, up.after) == (10.0, 20.0)
    assert (down.before, down.after) == (20.0, 10.0)
    assert lasting_fall(step, share=0.3) is None
    assert lasting_rise(30.0 - step, share=0.3) is None


@for_each("seed", range(20))
@for_each("points", LENGTHS)
def test_noise_of_a_tenth_is_none_of_them(points, seed):
    noisy = 1.0 + 0.1 * np.random.default_rng(seed).standard_normal(points)
    assert lasting_rise(noisy, share=0.3) is None
    assert lasting_fall(noisy, share=0.3) is None
    assert hump(noisy, times=2.5) is None
    assert slide(noisy, times=2.0) is None
    assert surge(noisy, times=2.5) is None
    assert shift(noisy, min_change=0.5) is None


@pytest.mark.parametrize("points", LENGTHS)
def test_a_slide_goes_on_and_what_is_learnt_slows_down(points):
    time = np.linspace(0, 1, points)
    assert slide(np.exp(3 * time), times=2.0).after > 2 * slide(np.exp(3 * time), times=2.0).before
    assert slide(5 - 4 * np.exp(-6 * time), times=2.0) is None
    assert slide(np.ones(points), times=2.0) is None


@pytest.mark.parametrize("points", [8, 15, 24, 60, 600, 5000])
def test_a_second_rise_is_one_and_a_warm_up_is_none(points):
    settled = curve(points, 0.0002, 0.0008, 0.0012, 0.0011, 0.006, 0.004, 0.003, 0.0025)
    assert surge(settled, times=2.5) is not None
    assert surge(np.linspace(1e-6, 1e-3, points), times=2.5) is None
    assert surge(curve(points, 0.0, 1.0, 1.0, 0.5, 0.2), times=2.5) is None


@pytest.mark.parametrize("points", LENGTHS)
def test_a_hump_comes_back_and_a_step_does_not(points):
    assert hump(curve(points, 0.5, 0.3, 0.2, 1.6, 0.3, 0.2), times=2.5) is not None
    assert hump(np.where(np.arange(points) < points // 2, 1.0, 9.0), times=2.5) is None


def test_one_point_among_many_is_a_spike():
    values = np.ones(500)
    values[321] = 9.0
    assert (spike(values, times=2.5).first, spike(values, times=2.5).after) == (321, 9.0)


@pytest.mark.parametrize("points", LENGTHS)
def test_a_level_that_changes_may_cross_zero(points):
    moved = shift(np.where(np.arange(points) < points // 2, -0.05, 0.1), min_change=0.05)
    assert (moved.before, moved.after) == (-0.05, 0.1)
    assert shift(np.zeros(points), min_change=0.05) is None


@pytest.mark.parametrize("points", LENGTHS)
def test_what_never_comes_back(points):
    assert lasting_turn(curve(points, 5.0, 3.8, 3.1, 3.9, 3.7, 3.6), share=0.08) is not None
    assert lasting_turn(curve(points, 5.0, 3.8, 3.1, 2.8, 2.6, 2.5), share=0.08) is None
    assert lasting_turn(curve(points, 3.0, 3.0, 4.0, 3.0, 3.0), share=0.08) is None


@pytest.mark.parametrize("points", [24, 60, 600])
@pytest.mark.parametrize("cycles", range(1, 9))
def test_cycles_and_decays_are_no_second_warm_up(points, cycles):
    time = np.linspace(0, 1, points)
    phase = (time * cycles) % 1
    assert warms_up_again(0.5 * (1 + np.cos(np.pi * phase))) is None
    assert warms_up_again(1 - np.abs(2 * phase - 1)) is None
    assert warms_up_again(np.minimum(time / 0.1, 1) * np.minimum((1 - time) / 0.1, 1)) is None


@pytest.mark.parametrize("points", [10, 15, 60, 600])
def test_a_second_warm_up(points):
    assert warms_up_again(curve(points, 0.0, 2.0, 4.0, 6.0, 6.0, 0.0, 2.0, 4.0, 6.0, 6.0)) is not None


@pytest.mark.parametrize("points", LENGTHS)
def test_what_had_settled_jumps(points):
    assert spike(curve(points, 0.5, 0.3, 0.2, 1.6, 0.3, 0.2), times=2.5) is not None
    assert spike(curve(points, 0.0, 0.25, 0.35, 0.4, 0.3, 0.1), times=2.5) is None


def test_a_warm_up_that_dips_once_has_not_settled():
    # The update over the weights of a BART in training, over its rate.
    over_rate = [10.2, 9.5, 11.1, 11.6, 15.9, 19.4, 10.5, 14.7, 17.4, 19.2, 33.3, 21.5, 17.4, 18.9, 20.7, 13.8, 12.8, 13.8, 11.0]
    assert surge(np.array(over_rate), times=2.5) is None
