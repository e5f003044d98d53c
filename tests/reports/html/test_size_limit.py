"""A report that would be too large is made smaller, says so, and still shows what stands out for one step alone."""

import re

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from numpy.random import default_rng

from ckaudit.contract.io.grids import encode_grid
from ckaudit.contract.schema.panels import Chart, Frame, Mark, Matrix, Panels, Ridge, Tab, Trace
from ckaudit.panels.downsample import shorten_document, shortened, thinned, without_charts
from ckaudit.reports.html import page_within_limit, render
from tests.reports.html.drawn import pictures, told

WHOLE, DATA = 4_500_000, 3_000_000
LONG = '<b>&"' * 200  # a thousand letters, of which a page makes five times as many


def data(page):
    return sum(len(each.encode()) for each in re.findall(r'"application/json" id="d-\w+">(.*?)</script>', page))


def large(names, *, tabs=6, points=3_000):
    """Return pictures of every shape with far too much in them, all places named by `names`."""
    rng = default_rng(0)
    numbers = rng.normal(size=(len(names), points)).round(6)
    steps = list(range(points))
    marks = [Mark(step=step, kind="finding", text=f"{names[0]} is ill", severity="sev1") for step in range(40)]
    traces = [Trace(name=name, x=steps, y=row.tolist()) for name, row in zip(names, numbers, strict=True)]
    matrix = Matrix(rows=list(names), columns=[str(step) for step in range(400)], values=numbers[:, :400].tolist())
    ridges = [
        Ridge(step=step, where=name, edges=list(range(33)), shares=[0.03125] * 32) for name in names[:12] for step in range(40)
    ]
    grid = encode_grid(rng.random((32, 32)), "q8")
    frames = [Frame(step=step, where=name, cells=grid) for name in names[:12] for step in range(40)]
    made = []
    for place in range(tabs):
        kinds = {
            "lines": {"traces": traces},
            "heatmap": {"matrix": matrix},
            "ridges": {"ridges": ridges},
            "grids": {"frames": frames},
        }
        charts = [
            Chart(id=f"{shape}{place}", title="Is it so?", shape=shape, metrics=["loss"], marks=marks, **kinds[shape])
            for shape in kinds
        ]
        made.append(
            Tab(id=f"tab{place}", question="Is it?", word="bad", answer=names[0], charts=charts, findings=list(range(5_000)))
        )
    return Panels(schema_version="ck.panels.v1", subjects=[names[0]], tabs=made)


def many(count, words):
    report = told()
    finding = replace(report.findings[0], where=words, message=f"{words} is ill", also=[f"{words}{place}" for place in range(60)])
    return replace(report, findings=[finding] * count)


@pytest.mark.parametrize(
    ("names", "findings", "drawn", "limits"),
    [
        ([f"blocks.{place}.weight" for place in range(40)], 3, {"tabs": 3}, {"whole": 3_200_000, "data": 1_500_000}),
        ([f"{LONG}{place}" for place in range(12)], 300, {"tabs": 2, "points": 400}, {"whole": 3_000_000, "data": 500_000}),
        (["w"], 1_500, {"tabs": 3}, {"whole": 3_000_000}),
    ],
    ids=["many points", "long names", "many findings"],
)
def test_whatever_is_in_it_the_file_stays_small_and_says_what_it_lacks(names, findings, drawn, limits):
    page, notes = page_within_limit(many(findings, names[0]), large(names, **drawn), **limits)
    assert len(page.encode()) <= limits.get("whole", WHOLE)
    assert data(page) <= limits.get("data", DATA)
    assert data(page) or any("left out" in each for each in notes)
    assert notes
    assert all(sentence in page for sentence in notes)
    assert "Is it so?" in page
    names_left = set(re.findall('id="c-([a-z]+)[0-9]"', page))
    assert names_left or any("left out" in each for each in notes)


def test_what_is_small_stays_as_it_is():
    assert page_within_limit(told(), pictures()) == (render(told(), pictures()), [])


def test_the_very_least_is_a_verdict():
    page, notes = page_within_limit(many(400, "w"), large(["w"]), whole=2_130_000, data=1_000)
    assert len(page.encode()) <= 2_130_000
    assert "Not drawn, for want of data" in page
    assert any(each.endswith("24 pictures are left out; the tabs say which") for each in notes)


def test_a_spike_of_one_step_outlives_every_halving():
    values = default_rng(1).normal(scale=0.01, size=2_000)
    values[[311, 1_500]] = 9.0, -7.0
    row = np.where(np.arange(2_000) == 700, 40.0, 1.0)
    chart = Chart(
        id="a",
        title="?",
        shape="lines",
        traces=[Trace(name="w", x=list(range(2_000)), y=[*values.tolist()])],
        matrix=Matrix(rows=["w"], columns=[str(step) for step in range(2_000)], values=[row.tolist()]),
    )
    panels = Panels(
        schema_version="ck.panels.v1", subjects=["w"], tabs=[Tab(id="t", question="?", word="bad", answer="", charts=[chart])]
    )
    for half in range(1, 5):
        panels = thinned(panels)
        (left,) = panels.tabs[0].charts
        at = dict(zip(left.traces[0].x, left.traces[0].y, strict=True))
        assert (at[311], at[1_500], at[0], at[1_999]) == (9.0, -7.0, values[0], values[1_999])
        assert len(at) <= 2_000 / 2**half
        assert left.matrix is not None
        assert len(left.matrix.columns) <= 2_000 / 2**half
        assert left.matrix.values[0][left.matrix.columns.index("700")] == 40.0


def test_parts_of_a_whole_keep_the_same_steps():
    traces = [Trace(name=name, x=list(range(100)), y=default_rng(place).random(100).tolist()) for place, name in enumerate("ab")]
    chart = Chart(id="a", title="?", shape="lines", stacked=True, traces=traces)
    panels = Panels(
        schema_version="ck.panels.v1", subjects=["w"], tabs=[Tab(id="t", question="?", word="bad", answer="", charts=[chart])]
    )
    first, second = thinned(panels).tabs[0].charts[0].traces
    assert first.x == second.x
    assert len(first.x) == 50


def test_names_that_begin_and_end_alike_stay_apart_and_matrices_stay_whole():
    cut = {shortened(f"{'a' * 200}{place}{'z' * 200}", 120) for place in range(50)}
    assert len(cut) == 50
    assert {len(each) for each in cut} == {120}
    assert len(shortened("ab " * 5_000, 120)) == 2_400
    before = large(["x" * 500], tabs=1, points=10)
    after = shorten_document(before)
    grids = [chart.frames[0] for document in (before, after) for chart in document.tabs[0].charts if chart.frames]
    assert msgspec.to_builtins(grids[0].cells) == msgspec.to_builtins(grids[1].cells)
    assert len(grids[1].where) == 120


def test_a_finding_whose_picture_is_left_out_leads_to_its_tab():
    left = without_charts(pictures(), ["loss"])
    assert [(each.tab, each.chart) for each in left.links] == [("training", None), ("unjudged", None)]
    assert "picture was left out" in left.tabs[0].missing[0]
    assert 'href="#t-training"' in render(told(), left)
