"""Maps and ranked bars of characters: the right shade at the right place, in any width, with letters where blocks cannot be."""

import math
from pathlib import Path

import pytest

from ckaudit.audit.metrics.measure import measure
from ckaudit.reports.terminal.charts import CROSS, PLAIN_SHADES, SHADES, heatmap, natural, ranked
from ckaudit.reports.terminal.metrics import draw
from ckaudit.reports.view import View
from tests.loops import for_each

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"


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
