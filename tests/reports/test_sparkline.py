"""One row of levels out of many points: neither the one spike nor the one dip may be averaged away."""

import pytest

from ckaudit.reports.terminal.pictures import CROSS, sparkline


@pytest.mark.parametrize("count", [13, 24, 25, 50])
@pytest.mark.parametrize("place", [0, 1, 7, 11, -3, -2, -1])
def test_one_point_that_stands_out_is_drawn(count, place):
    values = [1.0] * count
    values[place] = 0.0
    assert sparkline(values, width=12).count("▁") == 1
    assert sparkline([-value for value in values], width=12).count("█") == 1


def test_a_rise_that_ends_at_once_keeps_its_top():
    assert sparkline([1.0, 1, 2, 5, 5, 8, 1, 1, 1, 1], width=5) == "▁▂█▁▁"
    assert sparkline([5.0, 5, 8, 1, 1, 1], width=3) == "▅█▁"


def test_what_is_not_finite_is_crossed_out_and_one_level_stays_in_the_middle():
    assert sparkline([1.0, "NaN", 2.0, 2.0], width=2) == CROSS + "█"
    assert sparkline([3.0, 3.0, 3.0], width=3) == "▄▄▄"
    assert sparkline(["Infinity"], width=3) == CROSS
