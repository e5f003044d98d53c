"""Pushed point by point, a detector says exactly what the metric says of the whole series: the same bits."""

import math
import sys
from statistics import median

import numpy as np
import pytest

from ckaudit.metrics.divergence import val_rise
from ckaudit.metrics.loss import train_loss_ema
from ckaudit.metrics.optimizer import grad_clip_rate
from ckaudit.metrics.spikes import grad_norm_excess, grad_norm_over_median, loss_excess, loss_over_median
from ckaudit.metrics.streaming import Average, Rise, Share, Smallest, Spikes, Window
from tests.metrics.samples import NAN, column, run_of


def noisy(rng, count):
    return (3 + rng.normal(0, 0.1, count)).tolist()


def holes(rng, count):
    values = noisy(rng, count)
    return [rng.choice([NAN, math.inf, None, -math.inf]) if rng.random() < 0.2 else value for value in values]


def stairs(rng, count):
    return np.round(np.cumsum(rng.normal(0, 0.3, count)), 1).tolist()


def flat(rng, count):
    return [float(rng.choice([0.0, 0.0, 1.5]))] * (count // 2) + [0.0] * (count // 2)


def wild(rng, count):
    return (rng.choice([1.0, -1.0], count) * 10.0 ** rng.uniform(-300, 308, count)).tolist()


def rounded(rng, count):
    return np.float64(np.float32(np.round(rng.normal(1, 0.4, count) * 64) / 64)).tolist()


SHAPES = [noisy, holes, stairs, flat, wild, rounded]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)


def points(shape, seed, count=700):
    rng = np.random.default_rng(seed)
    values = [None if value is None else float(value) for value in shape(rng, count)]
    return np.cumsum(rng.integers(1, 4, len(values))).tolist(), values


def cell(series, row):
    return float(series.values[row, 0]) if series.recorded[row, 0] else None


def same(one, other):
    """Tell whether two cells are the same: not recorded, NaN, or the very same number."""
    if one is None or other is None:
        return one is other
    return (math.isnan(one) and math.isnan(other)) or one == other


def whole(metric, name, steps, values):
    """Return the cell of every step; a step that the metric leaves out is not recorded."""
    series = metric(_run(name, steps, values))
    found = {int(step): cell(series, row) for row, step in enumerate(series.steps)}
    return [found.get(step) for step in steps]


def _run(name, steps, values):
    run = run_of(scalars={name: values})
    run.scalars[name] = column(values, name=name, steps=steps)
    return run


def agree(told, expected):
    assert len(told) == len(expected)
    assert [pair for pair in zip(told, expected, strict=True) if not same(*pair)] == []


@shapes
@pytest.mark.parametrize("seed", range(4))
def test_the_moving_average(shape, seed):
    steps, values = points(shape, seed)
    detector = Average()
    agree(
        [detector.push(*point) for point in zip(steps, values, strict=True)],
        whole(train_loss_ema, "train_loss_raw", steps, values),
    )


@shapes
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("name", "excess", "over"),
    [("train_loss_raw", loss_excess, loss_over_median), ("grad_global_norm", grad_norm_excess, grad_norm_over_median)],
)
def test_spikes(shape, seed, name, excess, over):
    steps, values = points(shape, seed)
    detector = Spikes()
    told = [detector.push(*point) for point in zip(steps, values, strict=True)]
    agree([each.excess for each in told], whole(excess, name, steps, values))
    agree([each.over for each in told], whole(over, name, steps, values))


@shapes
@pytest.mark.parametrize("seed", range(4))
def test_the_clipped_share(shape, seed):
    steps, values = points(shape, seed)
    detector = Share()
    told = [detector.push(*point) for point in zip(steps, values, strict=True)]
    agree(told, whole(grad_clip_rate, "clip_coefficient", steps, values))


@shapes
@pytest.mark.parametrize("seed", range(4))
def test_the_rise_over_the_best(shape, seed):
    steps, values = points(shape, seed)
    detector = Rise()
    told = [detector.push(*point) for point in zip(steps, values, strict=True)]
    agree(told, whole(val_rise, "val_loss", steps, values))


@pytest.mark.parametrize("size", [1, 2, 3, 50, 99, 100])
def test_a_window_against_sorting_each_time(size):
    rng = np.random.default_rng(size)
    numbers = np.where(rng.random(400) < 0.3, 2.0, rng.normal(2, 1, 400)).tolist()
    window, smallest = Window(size), Smallest(size)
    for end, number in enumerate(numbers, 1):
        window.push(number)
        smallest.push(number)
        last = numbers[max(end - size, 0) : end]
        assert window.is_full() == (end >= size)
        assert smallest.smallest() == min(last)
        assert window.median() == median(last)
        for middle in (window.median(), 2.0, -9.0, 9.0):
            assert window.deviation(middle) == median([abs(each - middle) for each in last])


@pytest.mark.parametrize("detector", [Average(), Spikes(), Share(), Rise()], ids=lambda each: type(each).__name__)
def test_a_step_that_is_trained_again_begins_a_new_series(detector):
    detector.push(5, 1.0)
    with pytest.raises(ValueError, match="step 5 comes after step 5"):
        detector.push(5, 1.0)


def test_the_state_does_not_grow():
    spikes = Spikes()
    sizes = set()
    for step in range(3_000):
        spikes.push(step, math.sin(step))
        if step > 500:
            sizes.add(len(spikes._window._ordered) + len(spikes._window._numbers))
            assert len(spikes._finest._rising) <= 50
    assert sizes == {100}
    assert sys.getsizeof(spikes._window._ordered) < 2_000
