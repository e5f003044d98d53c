import numpy as np
import pytest

from ckaudit.run.robust import bfloat16_step, decimal_step, resolution


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
