"""Charts of characters: the right height or shade at the right place, in any width, with letters where blocks cannot be."""

import math
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from ckaudit.audit.measure import measure
from ckaudit.contract.schema.report import Chart, Point
from ckaudit.reports.terminal.charts import (
    CROSS,
    PLAIN_SHADES,
    SHADES,
    draw_curve,
    heatmap,
    natural,
    ranked,
    sparkline,
    starts,
    waterfall,
)
from ckaudit.reports.terminal.metrics import draw
from ckaudit.reports.view import View
from tests.loops import for_each

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"


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


def test_a_dead_branch_stands_behind_the_value_of_its_block():
    drawn = msgspec.structs.replace(chart([0.5, 0.4, 0.3]), remarks=["", "attn: 0", ""])
    lines = waterfall(drawn, width=60)
    assert lines[1].endswith(" 0.4  attn: 0")
    assert max(map(len, lines)) <= 60
    narrow = waterfall(
        msgspec.structs.replace(drawn, labels=["model.layers.10"] * 3, remarks=["", "attn: 3.1e-09", ""]), width=30
    )
    assert narrow[2] == "  attn: 3.1e-09"
    assert max(map(len, narrow)) <= 30


def test_a_deep_model_keeps_blocks_with_a_dead_branch():
    drawn = msgspec.structs.replace(chart([1.0] * 96), remarks=["attn: 0" if index in (41, 77) else "" for index in range(96)])
    lines = waterfall(drawn)
    assert [line.split()[0] for line in lines if "attn" in line] == ["41", "77"]
    assert len(lines) <= 25
    every = waterfall(msgspec.structs.replace(drawn, remarks=["attn: 0"] * 96))
    assert len(every) <= 25
    assert {"0", "95"} <= {line.split()[0] for line in every}


def test_long_names_keep_their_ends():
    (line, _) = waterfall(chart([1.0], ["model.decoder.layers.31"]), width=40, unicode=False)
    assert line.startswith("....layers.31")


def test_the_highest_point_fills_the_picture_and_the_lowest_one_eighth():
    rows = draw_curve(chart([1.0, 3.0, 2.0]), width=3, height=2)[:2]
    lowest, highest, middle = (column_height(rows, place) for place in range(3))
    assert (lowest, highest) == (1, 16)
    assert abs(middle - (lowest + highest) / 2) <= 0.5


def test_a_single_spike_survives_any_narrowing():
    values = [1.0] * 1000
    values[617] = 100.0
    rows = draw_curve(chart(values), width=40)[:4]
    assert column_height(rows, 617 * 40 // 1000) == 32
    assert rows[0].count("█") == 1


def test_gaps_are_blank_and_nonfinite_points_are_crosses():
    rows = draw_curve(chart([1.0, None, "NaN", 2.0]), width=4)[:4]
    assert [row[1:2] for row in rows] == ["", "", "", " "] or all(row.ljust(4)[1] == " " for row in rows)
    assert rows[0][2] == "\N{MULTIPLICATION SIGN}"


def test_a_mark_stands_under_its_step_with_the_rank_of_its_cause():
    labels = [str(step) for step in range(0, 100, 10)]
    lines = draw_curve(chart([1.0] * 10, labels), [None, 41], width=10)
    assert lines[4] == "     2"
    assert lines[5].endswith("cause 2 from 41")


def test_least_and_last_are_named_with_their_steps():
    assert draw_curve(chart([3.0, 1.5, "NaN", 2.0]))[-1] == "min 1.5 at 1, max 3 at 0, last 2 at 3"


def test_a_caption_is_of_all_points_and_not_of_those_drawn():
    told = {"least": Point(label="391", value=1.1745), "greatest": Point(label="2", value=5.0)}
    drawn = msgspec.structs.replace(chart([4.0, 1.187, 1.22], ["1", "394", "400"]), last=Point(label="400", value=1.22), **told)
    assert draw_curve(drawn)[-1] == "min 1.175 at 391, max 5 at 2, last 1.22 at 400"


def test_a_loss_that_broke_names_its_last_finite_value():
    drawn = msgspec.structs.replace(chart([2.0, "NaN"], ["148", "200"]), last=Point(label="149", value=1.564))
    assert draw_curve(drawn)[-1] == "min 2 at 148, max 2 at 148, last finite 1.564 at 149"


def test_without_a_finite_value_there_is_a_sentence():
    assert draw_curve(chart(["NaN", None])) == ["no finite value recorded"]


def test_a_flat_curve_and_an_ascii_screen_draw():
    lines = draw_curve(chart([2.0, 2.0, "NaN"]), width=3, unicode=False)
    assert "".join(lines).isascii()
    assert lines[0] == "  x"


def test_numbers_at_the_ends_of_the_range_of_floats_draw():
    rows = draw_curve(chart([-1.7e308, 1.7e308, 0.0]), width=3, height=2)[:2]
    assert [column_height(rows, place) for place in range(3)] == [1, 16, 9]


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


def test_each_cell_has_the_shade_of_its_value():
    rows = [("a", [0.0, 1.0, 2.0, 3.0]), ("b", [4.0, 5.0, 6.0, 7.0])]
    lines = heatmap(rows, [1, 2, 3, 4], width=40)
    assert lines == [f"a  {SHADES[:4]}", f"b  {SHADES[4:]}", "steps 1 to 4; ▁ 0, █ 7"]
    assert heatmap(rows, [1, 2, 3, 4], width=40, unicode=False)[:2] == [f"a  {PLAIN_SHADES[:4]}", f"b  {PLAIN_SHADES[4:]}"]


def test_wide_spans_are_drawn_by_powers_of_ten():
    lines = heatmap([("a", [10.0**-power for power in range(8)])], list(range(8)), width=40)
    assert lines == [f"a  {SHADES[::-1]}", "steps 0 to 7; ▁ 1e-07, █ 1, log scale"]


def test_nan_is_a_cross_and_what_is_missing_a_dot():
    lines = heatmap([("a", [1.0, None, "NaN", 2.0])], [1, 2, 3, 4], width=40)
    assert lines[0] == f"a  ▁·{CROSS}█"
    assert heatmap([("a", [1.0, None, "NaN", 2.0])], [1, 2, 3, 4], width=40, unicode=False)[0] == "a  . x@"
    assert heatmap([("a", [None, "NaN"])], [1, 2], width=40) == []


@pytest.mark.parametrize("place", [0, 1, 499, 731, 999])
def test_a_spike_of_one_step_is_seen_in_a_narrow_map(place: int):
    values = [1.0] * 1000
    values[place] = 2.0
    assert heatmap([("a", values), ("b", [1.0] * 1000)], list(range(1000)), width=60)[0].count("█") == 1


def test_rows_stand_by_their_numbers_and_too_many_are_said():
    rows = [(f"block.{place}", [float(place), 1.0]) for place in reversed(range(60))]
    lines = heatmap(rows, [1, 2], width=60, max_rows=10)
    names = [line.split()[0] for line in lines[:10]]
    assert names == sorted(names, key=natural)
    assert (names[0], names[-1]) == ("block.0", "block.59")
    assert lines[-1].endswith("10 of 60 places")


def test_bars_are_ranked_and_as_long_as_their_values():
    lines = ranked([("a", 1.0), ("b", 4.0), ("c", None), ("d", "NaN"), ("e", 2.0)], width=40)
    assert [line.split()[0] for line in lines[:5]] == ["d", "b", "e", "a", "c"]
    lengths = {line.split()[0]: line.count("█") for line in lines[:5]}
    assert (lengths["e"], lengths["a"]) == (lengths["b"] // 2, lengths["b"] // 4)
    assert lengths["b"] > 20
    assert lengths["c"] == lengths["d"] == 0
    assert lines[-1] == "from 0 to 4"


@for_each("width", [60, 61, 79, 80, 132])
@for_each("unicode", [True, False])
@for_each("name", ["block_gradient_norm", "normalized_attention_entropy", "relative_movement"])
def test_no_line_is_wider_than_the_screen(name: str, width: int, *, unicode: bool):
    drawn = draw(measure(RUNS / "lr_too_high", names=[name]), View(width=width, unicode=unicode), each_label=True)
    assert max(map(len, drawn.splitlines())) <= width
    assert "steps 10 to 300; " in drawn.replace("steps 0 to 300", "steps 10 to 300")
    assert unicode or drawn.isascii()


def test_a_hostile_label_steers_no_terminal(tmp_path: Path):
    name = "\x1b[2Jblock\x07.0\u202e"
    document = '{"schema_version":"ck.analysis.v1","step":%d,"gradients":{"%s":{"norm":%s},"b":{"norm":2.0}}}'
    written = name.replace("\x1b", "\\u001b").replace("\x07", "\\u0007")
    for step in (1, 2):
        text = document % (step, written, math.pi)
        (tmp_path / f"analysis_checkpoint_step_{step:08d}.json").write_text(text, encoding="utf-8")
    drawn = draw(measure(tmp_path, names=["gradient_norm"]), View(width=80, unicode=True), each_label=True)
    assert "\x1b" not in drawn
    assert "\x07" not in drawn
    assert "\u202e" not in drawn
    assert "steps 1 to 2; " in drawn
