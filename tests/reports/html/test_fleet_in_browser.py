"""The overview of a fleet in a real browser without a network: drawn, sorted, filtered, and read by a screen reader's rules."""

import re
from importlib.resources import files

import pytest

from ckaudit.reports.html.fleet import page
from tests.reports.html.fleet_drawn import fleet
from tests.reports.html.test_browser import browser, opened, path, pytestmark, until, window

__all__ = ["browser", "opened", "path", "pytestmark", "window"]


@pytest.mark.parametrize("width", [1280, 390], ids=["desk", "phone"])
def test_nothing_is_wider_than_the_screen_and_every_picture_is_drawn(opened, width):
    shown = opened(page(fleet(80)), width=width, color_scheme="dark" if width < 600 else "light")
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
    until(shown, "document.getElementById('curves').dataset.drawn === 'yes'")
    blank = (
        "[...document.querySelectorAll('canvas')].filter((canvas) => {"
        " const dots = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;"
        " return new Set(new Uint32Array(dots.buffer)).size < 3; }).length"
    )
    assert shown.evaluate(blank) == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_accessibility_rule_is_broken(opened, scheme):
    axe = pytest.importorskip("axe_playwright_python", reason="the rules are those of axe-core").__name__
    shown = opened(page(fleet(40, hostile=scheme == "dark")), color_scheme=scheme)
    shown.evaluate((files(axe) / "axe.min.js").read_text(encoding="utf-8") + "\n;0")
    shown.evaluate("toggle(0)")
    found = shown.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
    assert [(each["impact"], each["id"], each["nodes"][0]["html"]) for each in found] == []
    assert shown.evaluate("window.hit") is None


def test_lines_made_by_the_script_are_those_of_the_file(opened):
    links = {f"runs/{number:04d}": f"reports/{number} &.html" for number in range(0, 60, 2)}
    shown = opened(page(fleet(60), links))
    written = shown.evaluate("lines.map((line) => line.outerHTML)")
    shown.evaluate("lines.fill(undefined)")
    made = shown.evaluate("data.runs.map((_, at) => lineOf(at).outerHTML)")

    def plain(line):
        return sorted(re.findall(r'[\w-]+="[^"]*"', line)), re.sub(r"<[^>]*>", "|", line)

    assert [plain(line) for line in made] == [plain(line) for line in written]


def names(shown):
    return shown.evaluate("[...list.querySelectorAll('tr:not(.opened) th > :last-child')].map((each) => each.textContent)")


def test_list_is_sorted_and_filtered(opened):
    made = fleet(60)
    shown = opened(page(made))
    assert names(shown) == [run.run for run in made.runs]
    shown.click("thead button[data-sort=run]")
    assert names(shown) == sorted(run.run for run in made.runs)
    assert shown.get_attribute("thead th:has(button[data-sort=run])", "aria-sort") == "ascending"
    shown.click("thead button[data-sort=run]")
    assert names(shown) == sorted((run.run for run in made.runs), reverse=True)
    shown.click("thead button[data-sort=severity]")
    shown.fill("#find", "climbs runs/000")
    assert names(shown) == [run.run for run in made.runs if run.findings and run.run.startswith("runs/000")]
    assert shown.text_content("#counted") == "4 of 61 runs"
    shown.click("#all")
    shown.select_option("#severity", "unreadable")
    assert names(shown) == ["logs/broken.csv"]
    shown.click("#all")
    shown.click(".only")
    assert names(shown) == made.common_causes[0].runs
    shown.click("#all")
    assert len(names(shown)) == 61


def test_a_line_opens_to_what_was_found_and_the_command(opened):
    shown = opened(page(fleet(12)))
    shown.click("#list tr:first-child .more")
    words = shown.text_content("#list .opened")
    assert "runs/0000 climbs, from step 500" in words
    assert "ckaudit report runs/0000" in words
    assert "Change first: Halve it" in words
    assert shown.get_attribute("#list tr:first-child .more", "aria-expanded") == "true"
    shown.click("#list tr:first-child .more")
    assert shown.locator(".opened").count() == 0


def test_a_click_on_the_map_finds_the_run_in_the_list_however_far_down(opened):
    shown = opened(page(fleet(700)))
    assert len(names(shown)) == 200
    strip = shown.locator("canvas.strip").first
    box = strip.bounding_box()
    strip.click(position={"x": box["width"] - 0.3, "y": 5})
    assert shown.evaluate("list.querySelector('.found').dataset.at") in {"699", "700"}
    shown.locator("canvas.strip").first.hover(position={"x": 1, "y": 5})
    assert shown.text_content("#pointed").startswith("runs/0000: loss finite sev0")


def test_losses_of_a_group_come_to_the_front(opened):
    shown = opened(page(fleet(60)))
    until(shown, "document.getElementById('curves').dataset.drawn === 'yes'")
    shown.select_option("#by", "config.lr")
    assert shown.evaluate("[...document.querySelectorAll('#legend th')].map((each) => each.textContent)") == [
        "0.001",
        "0.01",
        "0.1",
    ]
    before = shown.evaluate("byId('curves').toDataURL()")
    shown.select_option("#group", "0.1")
    assert shown.evaluate("byId('curves').toDataURL()") != before
    assert "19 ill" in shown.text_content("#legend tr:last-child")


def test_many_runs_cost_the_browser_no_more_than_a_screenful(opened):
    """A page of 1,000 runs was drawn in 0.7 s; a busy machine would measure its neighbours, so what is counted is the work."""
    shown = opened(page(fleet(3000)))
    until(shown, "document.getElementById('curves').dataset.drawn === 'yes'")
    assert shown.evaluate("document.querySelectorAll('*').length") < 200 * 15 + 500
    assert shown.evaluate("near.length") < 2 * 400 * 45
    assert shown.evaluate("data.runs.length") == 3001
