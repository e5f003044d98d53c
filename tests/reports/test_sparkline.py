"""One row of levels out of many points: neither the one spike nor the one dip may be averaged away."""

from itertools import pairwise

from ckaudit.reports.terminal.charts import CROSS, sparkline, starts
from tests.loops import for_each


@for_each("count", [13, 24, 25, 50])
@for_each("place", [0, 1, 7, 11, -3, -2, -1])
def test_one_point_that_stands_out_is_drawn(count, place):
    values = [1.0] * count
    values[place] = 0.0
    assert sparkline(values, width=12).count(" ") == 1
    assert sparkline([value + 1 for value in values], width=12).count("▁") == 1
    assert sparkline([-value for value in values], width=12).count("█") == 1


def test_a_rise_that_ends_at_once_keeps_its_top():
    assert sparkline([1.0, 1, 2, 5, 5, 8, 1, 1, 1, 1], width=5) == "▁▂█▁▁"
    assert sparkline([5.0, 5, 8, 1, 1, 1], width=3) == "▅█▁"


def test_what_is_not_finite_is_crossed_out_and_one_level_stays_in_the_middle():
    assert sparkline([1.0, "NaN", 2.0, 2.0], width=2) == CROSS + "█"
    assert sparkline([3.0, 3.0, 3.0], width=3) == "▄▄▄"
    assert sparkline(["Infinity"], width=3) == CROSS


def test_the_last_value_is_the_last_bar_and_both_extremes_are_drawn():
    values = [2.84, 2.86] * 30 + [2.8, 2.75, 2.7, 2.907]
    drawn = sparkline(values, width=54)
    assert (len(drawn), drawn[-1], drawn.count("█"), drawn.count("▁")) == (54, "█", 1, 1)


def test_an_extreme_is_drawn_where_another_value_stands_out_beside_it():
    values = [0.0, 10.0, 10.0, 10.0, 10.2, 9.0, 10.0, 10.0, 10.0, 10.0, 10.0]
    drawn = sparkline([value + 1 for value in values], width=6)
    assert (drawn[0], drawn[2]) == ("▁", "█")


def test_zero_has_no_bar_and_what_is_not_recorded_is_a_dot():
    assert sparkline([0.0, 0.0], width=2) == "  "
    assert sparkline([0.0, 1e-9, None, 1.0], width=4) == " ▁·█"
    assert sparkline([0, None, 1.0], width=3, unicode=False) == " -#"
    assert sparkline([-1.0, 0.0, 1.0], width=3) == "▁▅█"


def test_columns_hold_every_value_once_and_the_last_one_alone():
    for count in range(1, 70):
        for width in range(1, 70):
            begins = starts(count, width)
            assert begins[0] == 0
            assert len(begins) == min(count, width)
            assert all(after > before for before, after in pairwise(begins))
            assert width == 1 or begins[-1] == count - 1
