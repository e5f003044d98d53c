"""How much better a rise explains a short curve than a law of learning, against a slow search written apart."""

import math

import numpy as np
import pytest

from ckaudit.run.learning_curves import NOISES, PACES, POWERS, rise_likelihood_ratio


def _squares(columns: list[np.ndarray], values: np.ndarray) -> float:
    """Return the sum of squared relative differences of the best mix, infinite where a column but the first goes down in it."""
    design = np.stack(columns, axis=1) / values[:, None]
    found, *_ = np.linalg.lstsq(design, np.ones(len(values)), rcond=None)
    return math.inf if (found[1:] < -1e-12).any() else float(np.square(design @ found - 1).sum())


def _slow_ratio(values: np.ndarray) -> float:
    count = len(values)
    time, ones = np.linspace(0, 1, count), np.ones(count)
    laws = [np.exp(-time / pace) for pace in PACES] + [(1 + time / pace) ** -power for pace in PACES for power in POWERS]
    falls = min([_squares([ones], values)] + [_squares([ones, law], values) for law in laws])
    rises = _squares([ones], values)
    for onset in range(1, count - 1):
        for law in laws:
            stopped = np.where(np.arange(count) < onset, law, law[onset - 1])
            jump = (np.arange(count) >= onset).astype(float)
            climb = np.maximum(0.0, (np.arange(count) - onset + 1) / (count - onset))
            rises = min(rises, _squares([ones, stopped, jump], values), _squares([ones, stopped, climb], values))

    def likelihood(squares: float) -> float:
        noise = np.clip(math.sqrt(squares / count), *NOISES)
        return -count * math.log(noise) - squares / (2 * noise**2)

    return likelihood(rises) - likelihood(falls)


@pytest.mark.parametrize("count", [7, 10, 15])
@pytest.mark.parametrize("risen", [0.0, 0.4])
def test_the_ratio_is_that_of_a_slow_search(count, risen):
    rng = np.random.default_rng(count)
    values = 2 + 3 * np.exp(-np.arange(count) / 2) + risen * 2 * (np.arange(count) >= count - 3)
    values *= 1 + 0.03 * rng.standard_normal(count)
    assert rise_likelihood_ratio(values) == pytest.approx(_slow_ratio(values), abs=0.02)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e9])
def test_a_unit_changes_nothing(unit):
    values = unit * np.array([5.0, 3.9, 3.2, 2.9, 2.7, 2.6, 3.4, 3.5, 3.4])
    assert rise_likelihood_ratio(values) == pytest.approx(rise_likelihood_ratio(values / unit), rel=1e-6)


def test_a_power_of_time_needs_no_rise_and_a_jump_does():
    time = np.linspace(0, 1, 12)
    falling = 2 + 3 * (1 + time / 0.1) ** -0.6
    assert rise_likelihood_ratio(falling) < 2
    assert rise_likelihood_ratio(falling + 1.5 * (time > 0.6)) > 20


def test_pure_noise_of_a_tenth_hardly_ever_asks_for_a_rise():
    rng = np.random.default_rng(1)
    high = sum(rise_likelihood_ratio(1 + 0.1 * rng.standard_normal(20)) > 6 for _ in range(200))
    assert high <= 10
