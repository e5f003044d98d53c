"""Still pictures hold what the interactive ones will: every spike, bars as long as their values, and what is not finite."""

import re

import pytest

from ckaudit.contract.schema.panels import Chart, Matrix, Trace
from ckaudit.reports.svg.static_chart import POINTS, SHADES, WIDTH, static_chart


def test_a_spike_of_one_step_is_in_a_curve_of_few_points():
    values = [1.0] * 5000
    values[3217] = 9.0
    drawn = static_chart(
        Chart(id="a", title="a", shape="lines", traces=[Trace(name="a", x=list(range(5000)), y=values)]), ["run"]
    )
    points = re.search(r'<polyline points="([^"]*)"', drawn)[1].split()
    heights = [float(point.split(",")[1]) for point in points]
    assert len(points) <= POINTS
    assert heights.count(min(heights)) == 1
    assert min(heights) < max(heights) - 100


@pytest.mark.parametrize(("log", "ratios"), [(False, (1, 2, 4)), (True, (1, 2, 3))])
def test_bars_are_as_long_as_their_values_or_their_powers(log, ratios):
    values = [10.0, 100.0, 1000.0] if log else [1.0, 2.0, 4.0]
    chart = Chart(id="a", title="a", shape="bars", log=log, traces=[Trace(name="a", x=["p", "q", "r"], y=values)])
    widths = [float(width) for width in re.findall(r'<rect[^>]* width="([^"]*)"', static_chart(chart, ["run"]))]
    assert [width / widths[0] for width in widths] == pytest.approx(ratios, rel=0.01)


def test_bars_of_two_runs_have_their_colours_and_a_ratio_of_both_has_neither():
    each = [Trace(name="a", x=["p"], y=[1.0], run=run) for run in (0, 1)]
    bars = Chart(id="a", title="a", shape="bars", traces=each)
    assert re.findall(r'class="dot (\w+)"', static_chart(bars, ["one", "two"])) == ["c0", "c1"]
    assert re.findall(
        r'class="dot (\w+)"', static_chart(Chart(id="a", title="a", shape="bars", traces=each[:1]), ["one", "two"])
    ) == ["plain"]


def test_a_map_has_a_cell_for_each_value_and_shows_what_is_not_finite():
    matrix = Matrix(rows=["p", "q"], columns=["1", "2", "3"], values=[[0.0, 1.0, "NaN"], [None, 0.5, "Infinity"]])
    drawn = static_chart(Chart(id="a", title="a", shape="heatmap", matrix=matrix), ["run"])
    cells = {look: path.count("M") for path, look in re.findall(r'<path d="([^"]*)" (?:class|fill)="([^"]*)"', drawn)}
    assert cells == {SHADES[0]: 1, SHADES[-1]: 1, SHADES[4]: 1, "mark sev0": 2}


def test_long_names_stay_inside():
    name = "model.layers.10.self_attn.q_proj.weight"
    drawn = static_chart(Chart(id="a", title="a", shape="bars", traces=[Trace(name="a", x=[name], y=[1.0])]), ["run"])
    (shown,) = re.findall(r'class="end"[^>]*>([^<]*)<', drawn)
    assert len(shown) * 7 < WIDTH / 2 - 66
    assert shown.endswith("weight")
