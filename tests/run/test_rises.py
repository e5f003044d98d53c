"""The fits behind a sustained rise, held against the min-max formula of isotonic regression and least squares written out."""

import numpy as np
import pytest

from ckaudit.run.isotonic_regression import fits_after, isotonic_fits
from ckaudit.run.rises import sustained_rise


def _falling(values):
    """Return the best falling curve: the lowest over all starts of the highest mean up to any end (Robertson et al. 1988)."""
    places = range(len(values))
    return np.array([min(max(values[a : b + 1].mean() for b in places[i:]) for a in places[: i + 1]) for i in places])


@pytest.mark.parametrize("count", [1, 2, 5, 20])
def test_falling_fits_are_the_isotonic_regressions_of_all_first_points(count):
    values = np.random.default_rng(count).standard_normal(count)
    fits = isotonic_fits(values)
    for points in range(1, count + 1):
        best = _falling(values[:points])
        assert fits.squares[points] == pytest.approx(float(np.square(values[:points] - best).sum()), abs=1e-12)
        assert fits.levels[points] == len(np.unique(best.round(9)))
        assert fits.low[points] == pytest.approx(best[-1])
        assert fits.width[points] == np.isclose(best, best[-1]).sum()


def test_what_comes_after_is_a_level_a_climb_or_a_fall():
    rng = np.random.default_rng(3)
    values, low = rng.standard_normal(9), rng.standard_normal(9)
    squares, _ = fits_after(values, low)
    for row in range(9):
        after = values[row:]
        away = np.arange(1.0, len(after) + 1)
        slope = max(0.0, np.linalg.lstsq(away[:, None], after - low[row], rcond=None)[0][0])
        assert squares[0, row] == pytest.approx(float(np.square(after - after.mean()).sum()), abs=1e-12)
        assert squares[1, row] == pytest.approx(float(np.square(after - low[row] - slope * away).sum()), abs=1e-12)
        line = np.polynomial.Polynomial.fit(away, after, 1) if len(after) >= 4 else None
        if line is None or line.convert().coef[1] >= 0:
            assert squares[2, row] == np.inf
        else:
            assert squares[2, row] == pytest.approx(float(np.square(after - line(away)).sum()), abs=1e-12)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
def test_the_unit_does_not_matter(scale):
    values = scale * np.array([4.0, 3.0, 2.5, 2.2, 2.0, 2.9, 3.1, 3.0, 3.2, 3.1])
    rise = sustained_rise(values)
    assert rise is not None
    assert (rise.low / scale, rise.onset) == (pytest.approx(2.0), 5)


def test_a_spike_that_was_given_back_is_no_rise():
    assert sustained_rise(np.array([4.0, 3.0, 2.0, 9.0, 2.1, 2.0, 1.9, 1.9, 1.8, 1.9])) is None


def test_a_single_lucky_batch_is_no_level_that_the_loss_rises_from():
    tails = np.random.default_rng(3)
    rises = []
    for _ in range(300):  # Student's noise of three degrees of freedom: single batches lie far below the others
        places = np.arange(50) / 50
        values = 1.1 + 0.3 * np.exp(-5 * places) + 0.05 * tails.standard_t(3, 50)
        rises.append(sustained_rise(values) is not None)
    assert sum(rises) <= 9
    values[20] = 0.4
    assert sustained_rise(np.append(values[:40], values[40:] + 0.6)) is not None
