"""The first page of real runs: the loss first, each finding once, few words before a picture, two runs in the order given."""

import re
from html import unescape
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from ckaudit.cli.report import draw, judge
from ckaudit.contract.schema.import_options import NO_IMPORT_OPTIONS
from ckaudit.policy.acceptance import OPEN
from ckaudit.reports import summary
from ckaudit.reports.html import render
from ckaudit.reports.svg import picture, png
from tests.reports.html.drawn import HOSTILE, pictures, told
from tests.reports.html.page_text import Tabs

RUNS = Path(__file__).parents[3] / "fixtures" / "runs"
ALONE = ("zeroed_projection", "lr_too_high", "nan_batch", "healthy", "experts_two_ranks")
MAX_WORDS = 60


@pytest.fixture(scope="module")
def made():
    found = {}

    def of(*names):
        if names not in found:
            sides = [judge(RUNS / name, None, NO_IMPORT_OPTIONS, OPEN, beside=len(names) > 1) for name in names]
            found[names] = sides[0].report, draw(*sides)
        return found[names]

    return of


@pytest.mark.parametrize("names", [*((name,) for name in ALONE), ("lr_too_high", "healthy")], ids="-".join)
def test_every_tab_has_its_picture_within_sixty_words(made, names):
    page = Tabs(render(*made(*names)))
    assert page.before["t-overview"] <= 5
    assert {name: words for name, words in page.before.items() if words > MAX_WORDS and name.startswith("t-")} == {}
    assert len(page.before) >= 10


@pytest.mark.parametrize("name", ["zeroed_projection", "lr_too_high", "nan_batch", "overfit_tiny"])
def test_each_finding_is_told_once(made, name):
    report, panels = made(name)
    whole = render(report, panels)
    page = Tabs(whole)
    messages = [finding.message for finding in report.findings]
    text = " ".join(words for tab, words in page.text.items() if tab != "header")
    longer = {message: [other for other in messages if message in other] for message in messages}
    counts = {message: text.count(" ".join(message.split())) - len(longer[message]) for message in messages}
    assert len(messages) >= 2
    assert {message: count for message, count in counts.items() if count} == {}
    assert not [message for message in messages if message in unescape(" ".join(re.findall(r'"application/json".*', whole)))]


def test_every_finding_is_marked_on_the_loss_at_its_step(made):
    report, panels = made("lr_too_high")
    loss = panels.front[0]
    dated = [(finding.first_step, place) for place, finding in enumerate(report.findings) if finding.first_step is not None]
    assert sorted((mark.step, mark.finding) for mark in loss.marks if mark.kind == "finding") == sorted(dated)
    whole = render(report, panels)
    counted = [int(number) for number in re.findall(r'class="count"[^>]*>(\d+)<', whole.partition("</svg>")[0])]
    glyphs = len(re.findall(r'<g class="mark [a-z0-9]+"[^>]* data-step', whole.partition("</svg>")[0]))
    assert glyphs - len(counted) + sum(counted) == len(loss.marks)
    assert {f"f-{place}" for _, place in dated} <= set(re.findall(r'id="(f-\d+)"', whole))


def test_small_pictures_are_of_what_was_found(made):
    chosen = {name: [chart.id for chart in made(name)[1].front[1:]] for name in ALONE}
    assert all(len(each) == 3 for each in chosen.values())
    assert set(chosen["healthy"]) == {"front_gradient", "front_attention", "front_update"}
    assert chosen["zeroed_projection"][:2] == ["front_gradient", "front_update"]
    assert "front_nonfinite" in chosen["nan_batch"] or made("nan_batch")[0].severity == "sev0"


def test_the_first_page_has_cause_knob_and_what_could_not_be_judged(made):
    report, panels = made("zeroed_projection")
    text = Tabs(render(report, panels)).text["t-overview"]
    places = [text.index(words) for words in ("Loss", "First cause", report.diagnoses[0].knob, "Not judged", "Findings: ")]
    assert places == sorted(places)
    assert f"{sum(check.outcome == 'skipped' for check in report.checks)} of {len(report.checks)} checks not judged" in text


def test_two_runs_stand_in_the_order_given_with_one_colour_each(made):
    report, panels = made("lr_too_high", "healthy")
    whole = render(report, panels)
    header = Tabs(whole).text["header"]
    places = [header.index(words) for words in ("A lr_too_high", "B healthy", "BETTER B against A: loss at step 300")]
    assert places == sorted(places)
    assert report.verdict in header
    swapped_page = Tabs(render(*made("healthy", "lr_too_high"))).text
    swapped = swapped_page["header"]
    assert "A healthy" in swapped
    assert "WORSE B against A: loss at step 300" in swapped
    ill = report.diagnoses[0]  # of whichever side it is on, its cause and its knob stand on the first page
    for text, picture_of in (
        (swapped_page["t-overview"], made("healthy", "lr_too_high")),
        (Tabs(whole).text["t-overview"], (report, panels)),
    ):
        assert text.count("First cause") == 1
        assert all(words in text for words in (ill.title, ill.knob))
        assert ill.title in picture.render(*picture_of)
    for drawn in re.findall(r"<svg.*?</svg>", whole, re.DOTALL):
        colours = set(re.findall(r'class="curve c(\d)', drawn))
        assert colours == ({"0", "1"} if "<polyline" in drawn else set())  # a map or bars have no curves
    for chart in panels.front:
        assert {trace.run for trace in chart.traces} == {0, 1}
    of_one = [chart for tab in panels.tabs for chart in tab.charts if chart.shape in ("heatmap", "ridges", "grids")]
    pairs = [(first, second) for first, second in pairwise(of_one) if second.id == f"{first.id}_b"]
    assert len(of_one) == 2 * len(pairs) >= 10
    assert all((first.run, second.run, second.marks) == (0, 1, []) for first, second in pairs)
    assert all(first.ends == second.ends for first, second in pairs)


def test_both_maps_share_the_ends_of_their_cells(made):
    _, panels = made("lr_too_high", "healthy")
    maps = [chart for tab in panels.tabs for chart in tab.charts if chart.id in ("gradient_waterfall", "gradient_waterfall_b")]
    cells = [cell for chart in maps for row in chart.matrix.values for cell in row if isinstance(cell, int | float) and cell > 0]
    assert [chart.ends for chart in maps] == [(min(cells), max(cells))] * 2


def test_a_run_without_a_loss_says_so_in_place_of_the_picture(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("\n".join(["step,grad_norm", *(f"{step},{1 + 1 / step}" for step in range(1, 80))]))
    judged = judge(log, None, NO_IMPORT_OPTIONS, OPEN)
    panels = draw(judged)
    assert panels.front[0].traces == []
    text = Tabs(render(judged.report, panels)).text["t-overview"]
    assert text.startswith("What is wrong? No loss to draw. train_loss_raw was not recorded")
    assert "No loss to draw" in picture.render(judged.report, panels)
    assert "No loss was recorded" in summary.render(judged.report, panels)


@pytest.mark.parametrize("words", HOSTILE)
def test_names_are_text_in_svg_and_in_markdown(words):
    panels = replace(pictures(words), front=[pictures(words).tabs[0].charts[0]] * 2)
    report = told(words)
    plain = picture.render(told("x"), replace(pictures("x"), front=[pictures("x").tabs[0].charts[0]] * 2))
    whole = picture.render(report, panels)
    tags, expected = ([each.tag for each in ET.fromstring(each).iter()] for each in (whole, plain))
    assert {*tags} == {*expected}
    assert not re.search(r"<(script|img|a|b|i)\b", whole)
    assert "<svg onload" not in whole
    drawn = summary.render(report, panels)
    assert "<img" not in drawn
    assert "<script" not in drawn
    assert "](javascript" not in drawn


def test_losses_of_two_runs_share_their_rows_of_blocks(made):
    rows = summary.losses(made("lr_too_high", "healthy")[1].front[0])
    assert [row[:2] for row in rows[:2]] == ["A ", "B "]
    first, second = (row[2:] for row in rows[:2])
    assert set(first[int(64 * 300 / 2000) + 1 :]) == {"·"}  # the first run ends at step 300 of 2,000
    assert "█" in first
    assert "█" not in second
    assert rows[2].endswith("steps 1 to 2,000")


def test_a_png_is_the_picture_at_twice_its_size(made):
    pytest.importorskip("resvg_py", reason="a PNG is drawn by resvg: the extra png")
    report, panels = made("zeroed_projection")
    drawn = png.render(report, panels)
    height = int(re.search(r'height="(\d+)" class="picture"', picture.render(report, panels))[1])
    assert (int.from_bytes(drawn[16:20]), int.from_bytes(drawn[20:24])) == (2 * picture.WIDTH, 2 * height)


def test_a_user_of_a_trainer_is_told_in_its_words_and_a_tab_without_pictures_is_short():
    log = RUNS.parent / "real" / "hf_trainer" / "whisper_small_hi_overfit" / "trainer_state.json"
    judged = judge(log, None, NO_IMPORT_OPTIONS, OPEN)
    page = Tabs(render(judged.report, draw(judged)))
    whole = " ".join(page.text.values())
    assert "after_backward" not in whole
    assert "recorder = Recorder" not in whole
    assert "trainer = Trainer(..., callbacks=[RecorderCallback" in whole
    assert {name: words for name, words in page.before.items() if words > MAX_WORDS and name.startswith("t-")} == {}
    assert page.before["t-attention"] > 0
