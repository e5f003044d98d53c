"""A picture is right without any style: what the sheet leaves unfilled has no fill, and every class has its light colours."""

import re
from importlib.resources import files
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from ckaudit.reports.html.first_page import overview
from ckaudit.reports.svg.picture import render
from ckaudit.reports.svg.static_chart import static_chart
from ckaudit.reports.svg.style import style_sheet
from tests.reports.html.drawn import pictures, told

SVG = "{http://www.w3.org/2000/svg}"
UNFILLED = {"curve", "broken"}


@pytest.fixture(scope="module")
def drawn():
    panels = pictures()
    charts = [chart for tab in panels.tabs for chart in tab.charts]
    front = replace(panels, front=[charts[0]] * 3)
    page = "".join(overview(told(), front))
    still = "".join(static_chart(chart, names) for chart in charts for names in (["a"], ["a", "b"]))
    whole = render(told(), front)
    return [
        *ET.fromstring(whole).iter(),
        *ET.fromstring(f"<all>{''.join(re.findall('<svg.*?</svg>', page + still))}</all>").iter(),
    ]


def of_class(drawn, name):
    return [each for each in drawn if name in each.get("class", "").split()]


def test_what_the_sheet_leaves_unfilled_has_no_fill(drawn):
    sheet = files("ckaudit.reports.svg").joinpath("picture.css").read_text(encoding="utf-8")
    assert {*re.findall(r"\.(\w+) \{ fill: none", sheet)} == UNFILLED
    for name in UNFILLED:
        assert {each.get("fill") for each in of_class(drawn, name)} == {"none"}


def test_every_shape_says_how_it_is_painted(drawn):
    shapes = [each for each in drawn if each.tag.removeprefix(SVG) in {"line", "polyline", "circle", "rect", "path"}]
    inside = {child: parent for parent in drawn for child in parent if "mark" in parent.get("class", "")}
    assert len(shapes) > 100
    for each in shapes:
        painted = inside.get(each, each)
        assert painted.get("stroke" if each.tag.endswith("line") else "fill"), ET.tostring(each)


def test_of_two_rules_the_one_that_names_more_classes_holds(drawn):
    light = dict(reversed(re.findall(r"--(\w+): (#\w+);", style_sheet())))
    assert {each.get("fill") for each in of_class(drawn, "title")} == {light["ink"]}
    assert {each.get("fill") for each in of_class(drawn, "sev1") if "mark" in each.get("class")} == {light["bad"]}
    assert {each.get("font-size") for each in of_class(drawn, "title")} == {"15px"}
    assert {each.get("text-anchor") for each in of_class(drawn, "end")} == {"end"}


def test_a_picture_for_programs_without_variables_has_no_sheet():
    panels = replace(pictures(), front=[pictures().tabs[0].charts[0]])
    plain = render(told(), panels, light=True)
    assert "<style" not in plain
    assert "var(" not in plain
    assert plain == re.sub("<style>.*?</style>", "", render(told(), panels), flags=re.DOTALL)
