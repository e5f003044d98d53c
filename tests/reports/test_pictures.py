import math
from itertools import pairwise

from ckaudit.contract.report import Chart
from ckaudit.reports.terminal.pictures import curve, waterfall


def chart(values, labels=None, name="loss"):
    return Chart(name=name, title="", unit="1", labels=labels or [str(step) for step in range(len(values))], values=values)


def bar_length(line):
    """Return the length of a bar in cells, eighths counted."""
    return sum(1 if letter == "█" else (" ▏▎▍▌▋▊▉".index(letter) / 8) for letter in line if letter in "▏▎▍▌▋▊▉█")


def column_height(rows, place):
    return sum(" ▁▂▃▄▅▆▇█".index(row.ljust(place + 1)[place]) for row in rows)


def test_bars_grow_by_the_same_length_per_decade():
    lines = waterfall(chart([1e-3, 1e-2, 1e-1, 1.0]), width=80)
    lengths = [bar_length(line) for line in lines[:4]]
    steps = [after - before for before, after in pairwise(lengths[1:])]
    assert max(steps) - min(steps) <= 0.25
    assert lines[-1] == "log axis, 1e-03 to 1e+00"


def test_a_bar_ends_where_its_logarithm_does():
    lines = waterfall(chart([1e-4, 3e-2, 1.0]), width=80)
    share = bar_length(lines[1]) / bar_length(lines[2])
    assert math.isclose(share, (math.log10(3e-2) + 4) / 4, abs_tol=0.01)


def test_zero_missing_and_nonfinite_blocks_are_written_out_differently():
    lines = waterfall(chart([0.0, None, "NaN", "Infinity", 1.0]))
    assert [line.split(maxsplit=1)[1] for line in lines[:4]] == ["0", "not recorded", "NaN", "Infinity"]


def test_a_waterfall_of_nothing_still_draws():
    assert waterfall(chart([None, "NaN"]))[0].endswith("not recorded")


def test_a_deep_model_keeps_its_ends_and_extremes():
    values = [1.0] * 96
    values[37], values[58] = 1e-6, 50.0
    lines = waterfall(chart(values))
    shown = [int(line.split()[0]) for line in lines[:-1]]
    assert {0, 37, 58, 95} <= set(shown)
    assert len(shown) <= 24
    assert lines[-1].endswith(f"{len(shown)} of 96 blocks")


def test_long_names_keep_their_ends():
    (line, _) = waterfall(chart([1.0], ["model.decoder.layers.31"]), width=40, unicode=False)
    assert line.startswith("....layers.31")


def test_the_highest_point_fills_the_picture_and_the_lowest_one_eighth():
    rows = curve(chart([1.0, 3.0, 2.0]), width=3, height=2)[:2]
    lowest, highest, middle = (column_height(rows, place) for place in range(3))
    assert (lowest, highest) == (1, 16)
    assert abs(middle - (lowest + highest) / 2) <= 0.5


def test_a_single_spike_survives_any_narrowing():
    values = [1.0] * 1000
    values[617] = 100.0
    rows = curve(chart(values), width=40)[:4]
    assert column_height(rows, 617 * 40 // 1000) == 32
    assert rows[0].count("█") == 1


def test_gaps_are_blank_and_nonfinite_points_are_crosses():
    rows = curve(chart([1.0, None, "NaN", 2.0]), width=4)[:4]
    assert [row[1:2] for row in rows] == ["", "", "", " "] or all(row.ljust(4)[1] == " " for row in rows)
    assert rows[0][2] == "\N{MULTIPLICATION SIGN}"


def test_a_mark_stands_under_its_step_with_the_rank_of_its_cause():
    labels = [str(step) for step in range(0, 100, 10)]
    lines = curve(chart([1.0] * 10, labels), [None, 41], width=10)
    assert lines[4] == "     2"
    assert lines[5].endswith("cause 2 from 41")


def test_least_and_last_are_named_with_their_steps():
    assert curve(chart([3.0, 1.5, "NaN", 2.0]))[-1] == "min 1.5 at 1, max 3, last 2 at 3"


def test_without_a_finite_value_there_is_a_sentence():
    assert curve(chart(["NaN", None])) == ["no finite value recorded"]


def test_a_flat_curve_and_an_ascii_screen_draw():
    lines = curve(chart([2.0, 2.0, "NaN"]), width=3, unicode=False)
    assert "".join(lines).isascii()
    assert lines[0] == "  x"
