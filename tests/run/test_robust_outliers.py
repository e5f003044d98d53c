import numpy as np
import pytest

from ckaudit.run.robust import departures
from ckaudit.run.series import single


def test_a_departure_is_measured_by_what_was_before():
    values = np.array([1.0, 2.0, 3.0, 2.0, 2.0, 20.0, 2.0])
    away, usual = departures(single("x", "1", np.arange(7), values), min_deviation=0.1, history=5, k=6.0)
    deviation = 6 * 1.4826 * np.median(np.abs(values[:5] - 2.0))
    assert np.isnan(away[:5]).all()
    assert usual[5:, 0].tolist() == [2.0, 2.0]
    assert away[5, 0] == pytest.approx(18.0 / max(deviation, 0.1))
    assert away[6, 0] == 0.0


def test_a_quantity_that_never_moves_has_a_least_unit():
    away, _ = departures(single("x", "1", np.arange(7), np.array([4.0] * 6 + [5.0])), min_deviation=0.5, relative=0.5)
    assert away[6, 0] == pytest.approx(1.0 / 2.0)
