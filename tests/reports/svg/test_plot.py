"""Curves as SVG: where each point and mark stands, read back by the numbers that the axes bear."""

import math
import re
from itertools import pairwise
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ckaudit.contract.schema.panels import Chart, Mark, Trace
from ckaudit.reports.svg.plot import APART, cluster_text, clusters, plot
from ckaudit.reports.svg.scale import Scale, fitted, tick_text

WIDTH, HEIGHT = 960, 320


def drawn(chart, **how):
    return ET.fromstring(f"<svg>{plot(chart, WIDTH, HEIGHT, **how)}</svg>")


def of_class(root, name):
    return [each for each in root.iter() if name in each.get("class", "").split()]


def number_in(text):
    """Return the number that a tick bears."""
    power = re.fullmatch(r"10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", text)
    if power:
        return 10.0 ** int(power[1].translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")))
    return float(text.replace(",", "").replace(" M", "e6"))


def axis(root, anchor, attribute, *, log=False):
    """Return the map from pixels to values that the ticks of an axis tell."""
    ticks = []
    for text in of_class(root, anchor):
        try:
            ticks.append(
                (float(text.get(attribute)) - 4 * (attribute == "y"), number_in(text.text))
            )  # letters stand 4 pixels lower
        except ValueError:
            continue  # its name
    (first, low), (last, high) = ticks[0], ticks[-1]
    low, high = (math.log10(low), math.log10(high)) if log else (low, high)

    def value(pixel):
        at = low + (pixel - first) / (last - first) * (high - low)
        return 10**at if log else at

    return value


def curve(root, place=0):
    return [tuple(map(float, point.split(","))) for point in root.findall(".//polyline")[place].get("points").split()]


def chart(values, *, log=False, marks=(), steps=None, **more):
    steps = list(range(10, 10 * len(values) + 1, 10)) if steps is None else steps
    return Chart(
        id="a", title="Loss", shape="lines", log=log, marks=list(marks), traces=[Trace(name="w", x=steps, y=values)], **more
    )


@pytest.mark.parametrize("log", [False, True])
def test_every_point_stands_where_the_axes_say(log):
    values = [float(value) for value in np.geomspace(30, 0.02, 60)]
    root = drawn(chart(values, log=log))
    step, size = axis(root, "middle", "x"), axis(root, "end", "y", log=log)
    found = curve(root)
    assert [step(x) for x, _ in found] == pytest.approx(list(range(10, 601, 10)), abs=0.5)
    if log:
        assert [size(y) for _, y in found] == pytest.approx(values, rel=0.01)
    else:
        assert [size(y) for _, y in found] == pytest.approx(values, abs=0.03)


def test_marks_stand_at_their_steps_and_their_lines_reach_the_axis():
    marks = [
        Mark(step=step, kind="finding", text="ill", severity=severity, code=f"LOSS{step}", finding=place)
        for place, (step, severity) in enumerate([(100, "sev2"), (300, "sev1"), (301, "note"), (480, "sev2")])
    ]
    marks.append(Mark(step=200, kind="event", text="loss_spike"))
    root = drawn(chart([float(place) for place in range(60)], marks=marks))
    step = axis(root, "middle", "x")
    shapes = [each for each in root.iter("g") if "mark" in each.get("class", "")]
    assert [each.get("data-step") for each in shapes] == ["100", "300", "480", "200"]
    tips = [float(re.match(r"M([\d.]+)", each.find("path").get("d"))[1]) for each in shapes]
    assert [step(x + 5.5) for x in tips[:3]] == pytest.approx([100, 300, 480], abs=0.5)
    assert step(tips[3]) == pytest.approx(200, abs=0.5)
    assert [each.get("class") for each in shapes] == ["mark sev2", "mark sev1", "mark sev2", "mark event"]
    assert shapes[1].find("text").text == "2"
    assert shapes[1].find("title").text == "steps 300 to 301: LOSS300, LOSS301"
    lines = of_class(root, "since")
    assert [step(float(line.get("x1"))) for line in lines] == pytest.approx([100, 300, 480], abs=0.5)
    (bottom,) = {line.get("y1") for line in of_class(root, "axis")}
    assert {line.get("y2") for line in lines} == {bottom}
    assert "ill" not in "".join(root.itertext())
    legend = [each.text for each in root.iter("text") if each.get("class") is None]
    assert legend == ["sev1 finding", "sev2 finding", "note finding", "event"]


@settings(deadline=None)
@given(st.lists(st.integers(0, 5_000), min_size=1, max_size=60))
def test_no_two_marks_overlap_and_none_is_lost(steps):
    found = clusters([Mark(step=step, kind="finding", text="", code=f"C{step}") for step in steps], Scale(0, 5_000, 50, 900))
    assert sorted(mark.step for cluster in found for mark in cluster.marks) == sorted(steps)
    places = [cluster.x for cluster in found]
    assert all(after - before >= APART for before, after in pairwise(places))
    for cluster in found:
        first = min(mark.step for mark in cluster.marks)
        assert cluster.x == pytest.approx(50 + first / 5_000 * 850)
        assert max(mark.step for mark in cluster.marks) - first <= APART * 5_000 / 850
        assert f"{first:,}" in cluster_text(cluster)


def test_what_is_missing_parts_a_curve_and_what_is_not_finite_has_a_cross_and_a_bar():
    values = [*map(float, range(50)), None, *map(float, range(50)), "NaN", "Infinity", "NaN"]
    root = drawn(chart(values))
    step = axis(root, "middle", "x")
    (broken,) = [each for each in of_class(root, "broken") if "H" in each.get("d")]
    first, last = re.search(r"M([\d.]+) [\d.]+H([\d.]+)", broken.get("d")).groups()
    assert [step(float(first)), step(float(last))] == pytest.approx([1_020, 1_040], abs=2)
    assert "not finite" in "".join(root.itertext())


@settings(deadline=None)
@given(
    st.floats(-1e6, 1e6, allow_nan=False),
    st.floats(1e-3, 1e6, allow_nan=False),
    st.integers(3, 9),
    st.sampled_from([False, True]),
)
@example(2.5, 0.001953125, 3, False)
def test_ticks_are_round_and_on_the_scale(low, span, most, log):
    low = abs(low) + 1e-6 if log else low
    span = max(span, 1e-5 * abs(low))  # what differs by less no axis can tell in a few letters
    scale = fitted([low, low + span], [], 0, 100, log=log)
    ticks = scale.ticks(most)
    assert ticks == sorted(ticks)
    assert len(ticks) <= 12
    assert all(-1e-6 <= scale(tick) <= 100 + 1e-6 for tick in ticks)
    if not log:
        assert len(ticks) > 1
        (apart,) = {f"{after - before:.3g}" for before, after in pairwise(ticks)}
        assert f"{float(apart):e}"[0] in "125"
        assert all(round(tick / float(apart), 6).is_integer() for tick in ticks)


def test_numbers_of_ticks_are_short_and_say_what_they_are():
    for value in (0, 0.2, 1, 50, 2_000, 150_000, 2.5e6, 1e-5, 3e-9, 1e12, -20, -1e-7):
        text = tick_text(value)
        assert len(text) <= 7
        assert (-number_in(text[1:]) if text.startswith("-") else number_in(text)) == pytest.approx(value)


def test_limits_are_drawn_where_they_are_and_only_where_the_curves_are():
    root = drawn(chart([1.0, 2.0, 3.0], lines=[("near", 2.5), ("far", 900.0)]))
    size = axis(root, "end", "y")
    assert [size(float(line.get("y1"))) for line in of_class(root, "limit")] == pytest.approx([2.5], abs=0.02)
    assert "far" not in "".join(root.itertext())


def test_of_two_runs_each_has_one_colour():
    traces = [Trace(name=name, x=[1, 2, 3], y=[1.0, 2.0, 3.0], run=run) for run in (0, 1) for name in ("train", "val")]
    both = Chart(id="a", title="Loss", shape="lines", traces=traces)
    root = drawn(both, subjects=["old", "new"])
    looks = [each.get("class").split()[1:] for each in root.findall(".//polyline")]
    assert looks == [["c0", "d0"], ["c0", "d1"], ["c1", "d0"], ["c1", "d1"]]
    legend = [each.text for each in root.iter("text") if each.get("class") is None]
    assert legend == ["A old", "B new", "train", "val"]
    alone = [each.get("class").split()[1] for each in drawn(both).findall(".//polyline")]
    assert alone == ["c0", "c1", "c0", "c1"]


def test_steps_have_whole_numbers_and_what_hardly_changes_is_flat():
    root = drawn(chart([7.6101e-6, 7.61e-6], steps=[94_768, 94_769]))
    assert [text.text for text in of_class(root, "middle") if text.text != "step"] == ["94,768", "94,769"]
    (first, second) = curve(root)
    assert abs(first[1] - second[1]) < 10
    labels = [text.text for text in of_class(root, "end")]
    assert len({*labels}) == len(labels) >= 3
    assert max(map(len, labels)) <= 8


@settings(deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.floats(), st.sampled_from(["NaN", "Infinity"])), min_size=1, max_size=60),
    st.booleans(),
    st.integers(0, 10**15),
)
def test_whatever_the_values_every_place_is_a_number(values, log, first):
    values = [value if not isinstance(value, float) or math.isfinite(value) else "NaN" for value in values]
    root = drawn(chart(values, log=log, steps=list(range(first, first + len(values)))))
    written = [value for each in root.iter() for name, value in each.attrib.items() if name not in ("class", "transform")]
    numbers = [float(number) for value in written for number in re.findall(r"-?[\d.]+(?:e[+-]?\d+)?|nan|inf", value)]
    assert all(math.isfinite(number) for number in numbers)
    heights = [float(y) for line in root.iter("polyline") for y in re.findall(r",(-?[\d.]+)", line.get("points"))]
    assert all(-1 <= y <= HEIGHT + 1 for y in heights)
