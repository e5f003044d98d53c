import math
import tracemalloc
from statistics import median

import numpy as np
import pytest

from ckaudit.metrics.spikes import flagged, grad_norm_excess, grad_norm_over_median, loss_excess, loss_over_median
from ckaudit.run.run import Run
from ckaudit.run.series import single
from tests.metrics.samples import NAN, cells, close, run_of

PAIRS = [(loss_excess, loss_over_median, "train_loss_raw"), (grad_norm_excess, grad_norm_over_median, "grad_global_norm")]


def excess(values):
    return {step: value for (step, _), value in cells(loss_excess(run_of(scalars={"train_loss_raw": values}))).items()}


def noisy(count, *, base=3.0, spread=0.1, seed=0):
    return np.random.default_rng(seed).normal(base, spread, count).tolist()


def slow(values):
    """Return excess and ratio by the book, for numbers in full precision."""
    above, over, past = {}, {}, []
    for step, value in enumerate(values, 1):
        if value is None:
            continue
        if len(past) >= 50:
            middle = median(past[-50:])
            mad = median(abs(each - middle) for each in past[-50:])
            spread = max(1.4826 * mad, 1e-3 * abs(middle))
            above[step] = (value - middle) / spread if math.isfinite(value) else NAN
            over[step] = value / middle if math.isfinite(value) else NAN
        if math.isfinite(value):
            past.append(value)
    return above, over


@pytest.mark.parametrize(("above", "over", "name"), PAIRS)
def test_against_a_slow_loop_with_gaps_and_nan(above, over, name):
    values = noisy(400)
    values[20], values[120], values[121], values[122], values[300] = NAN, NAN, None, math.inf, 99.0
    run = run_of(scalars={name: values})
    expected = slow(values)
    assert close({step: value for (step, _), value in cells(above(run)).items()}, expected[0], 1e-9)
    assert close({step: value for (step, _), value in cells(over(run)).items()}, expected[1], 1e-9)


def test_pieces_of_a_long_series_fit_together():
    values = noisy(20_000)
    found, expected = excess(values), slow(values)[0]
    assert all(found[step] == pytest.approx(expected[step]) for step in (51, 8_192, 8_193, 8_242, 8_243, 16_434, 16_435, 20_000))


@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_before_a_whole_window_nothing_is_measured(count):
    assert excess(noisy(count) if count else [None]) == {}


def test_the_first_point_after_a_window_is_measured():
    assert list(excess(noisy(51))) == [51]


def test_only_spikes_are_flagged_and_only_upwards():
    values = noisy(300)
    values[200], values[250] = 4.5, 1.5
    found = loss_excess(run_of(scalars={"train_loss_raw": values}))
    assert found.steps[flagged(found)[:, 0]].tolist() == [201]


def test_nan_is_never_flagged():
    values = noisy(100)
    values[80], values[81] = NAN, math.inf
    found = loss_excess(run_of(scalars={"train_loss_raw": values}))
    assert not flagged(found).any()
    assert found.nonfinite[:, 0].tolist().count(True) == 2


def test_a_constant_log_tells_a_digit_from_a_jump():
    assert excess([0.0002] * 60 + [0.0003])[61] < 6 < excess([0.0002] * 60 + [0.5])[61]


@pytest.mark.parametrize("decimals", [0, 1, 2])
def test_rounding_alone_flags_nothing(decimals):
    found = np.array(list(excess(np.round(noisy(3_000, spread=10.0**-decimals / 8), decimals).tolist()).values()))
    assert found.max() < 6


@pytest.mark.parametrize("base", [2.05, 2.7, 3.9])
def test_rounding_to_bfloat16_alone_flags_nothing(base):
    bits = np.array(noisy(3_000, base=base, spread=0.004), np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32)
    assert max(excess(rounded.tolist()).values()) < 6


def test_an_outlier_in_a_constant_window_does_not_hide_the_next():
    found = excess([0.0002] * 60 + [5.0, 4.0])
    assert found[62] > 6


def test_a_log_of_zeros_says_nothing_of_ratios():
    run = run_of(scalars={"grad_global_norm": [0.0] * 60 + [0.3]})
    assert cells(grad_norm_over_median(run)) == {}
    assert max(value for value in cells(grad_norm_excess(run)).values()) < 6


def test_each_column_has_its_own_baseline():
    low, high = noisy(60), noisy(60, base=900.0, seed=1)
    rows = {step: {"a": x, "b": y} for step, (x, y) in enumerate(zip(low, high, strict=True), 1)}
    found = loss_excess(run_of(scalars={"train_loss_raw": rows}))
    for column, values in enumerate((low, high)):
        assert found.values[50:, column] == pytest.approx(list(slow(values)[0].values()))


def test_windows_are_not_all_in_memory_at_once():
    count = 200_000
    run = Run(
        "long", scalars={"train_loss_raw": single("x", "1", np.arange(count), np.random.default_rng(0).normal(3, 0.1, count))}
    )
    tracemalloc.start()
    loss_excess(run)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32e6, "windows of all points together would be 80 MB"
