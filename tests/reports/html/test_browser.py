"""The page in a real browser without a network: it opens, every tab and slider works, and names do nothing."""

import os
import re
import shutil
import time
from importlib.resources import files
from itertools import combinations
from pathlib import Path

import pytest

from ckaudit.cli.report import draw, judge
from ckaudit.contract.schema.import_options import NO_IMPORT_OPTIONS
from ckaudit.policy.acceptance import OPEN
from ckaudit.reports.html import render
from ckaudit.reports.svg import picture
from tests.reports.html.drawn import HOSTILE, pictures, told

playwright = pytest.importorskip("playwright.sync_api", reason="the browser is driven by the package playwright")
CHROMIUM = os.environ.get("CKAUDIT_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
RUNS = Path(__file__).parents[3] / "fixtures" / "runs"
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: install it, or name it in CKAUDIT_CHROMIUM"),
    # The driver's own event loop leaves its sockets to the collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--no-zygote", "--in-process-gpu"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def window(browser):
    """Give the one page that all reports are opened in: the charting library, at one address, is then compiled once."""
    with browser.new_context(offline=True) as context:
        yield context.new_page()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Name the file that every report is written to."""
    return tmp_path_factory.mktemp("browser") / "report.html"


@pytest.fixture
def opened(window, path):
    """Open a page offline; at the end nothing may stand in its console."""
    messages = []
    heard = {
        "console": lambda message: messages.append(message.text),
        "pageerror": lambda error: messages.append(str(error)),
        "request": lambda request: messages.append(request.url) if not request.url.startswith(("file:", "data:")) else None,
    }
    for event, hear in heard.items():
        window.on(event, hear)

    def go(html, *, address="", width=1280, color_scheme="light"):
        window.goto("about:blank")  # or an address that differs after its # alone would not be loaded anew
        path.write_text(html, encoding="utf-8", newline="")
        window.set_viewport_size({"width": width, "height": 900})
        window.emulate_media(color_scheme=color_scheme)
        window.goto(f"{path.as_uri()}{address}")
        until(window, "document.documentElement.dataset.ready === 'yes'")
        return window

    yield go
    window.goto("about:blank")
    for event, hear in heard.items():
        window.remove_listener(event, hear)
    assert messages == []


def until(page, condition, patience=20.0):
    """Wait for a condition; the driver's own waiting would need `eval`, which the page forbids."""
    end = time.monotonic() + patience
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        time.sleep(0.02)


def drawn(page, chart):
    until(page, f"document.getElementById('c-{chart}').dataset.drawn === 'yes'")
    return page.locator(f"#c-{chart}")


@pytest.fixture(scope="module")
def real():
    """The report of a recorded run with everything in it, beside another."""
    from ckaudit.cli.report import draw, judge
    from ckaudit.contract.schema.import_options import NO_IMPORT_OPTIONS
    from ckaudit.policy.acceptance import OPEN

    path = RUNS / "no_warmup_spike"
    judged, other = (judge(each, None, NO_IMPORT_OPTIONS, OPEN, beside=True) for each in (path, RUNS / "healthy"))
    return render(judged.report, draw(judged, other))


@pytest.mark.parametrize("width", [1280, 390], ids=["desk", "phone"])
def test_every_tab_opens_and_every_chart_is_drawn(opened, real, width):
    page = opened(real, width=width, color_scheme="dark" if width < 600 else "light")
    for name in page.evaluate("tabs.map((tab) => tab.id.slice(4))"):
        page.locator(f"#tab-{name}").evaluate("tab => tab.click()")
        assert page.evaluate("panels.filter((panel) => !panel.hidden).map((panel) => panel.id)") == [f"t-{name}"]
        page.evaluate("figures().filter(seen).forEach((figure) => draw(figure))")
        empty = "figures().filter(seen).filter((figure) => !figure.querySelector('.main-svg')).length"
        assert page.evaluate(empty) == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_accessibility_rule_is_broken(opened, real, scheme):
    axe = pytest.importorskip("axe_playwright_python", reason="the rules are those of axe-core").__name__
    page = opened(real if scheme == "light" else render(told(), pictures()), color_scheme=scheme)
    page.evaluate((files(axe) / "axe.min.js").read_text(encoding="utf-8") + "\n;0")
    names = page.evaluate("tabs.map((tab) => tab.id.slice(4))")
    # A drawing is one image to a reader, described by its label and its table: its thousand parts are not looked at.
    left_out = [".plot > *"]
    # A run of the rules walks through the whole of a large report: there several tabs are shown at once.
    together = [["overview"], ["attention", "other_run", "unjudged", "per_step"]]
    for shown in [[name] for name in names] if scheme == "dark" else together:
        page.evaluate("(name) => go(`#t-${name}`)", shown[0])
        page.evaluate("(names) => names.forEach((name) => { document.getElementById(`t-${name}`).hidden = false; })", shown)
        found = page.evaluate("(exclude) => axe.run({ exclude }, { resultTypes: ['violations'] })", left_out)["violations"]
        left_out = [".plot > *", "[hidden]"]  # what nobody sees was looked at once
        assert [(each["impact"], each["id"], each["nodes"][0]["html"]) for each in found] == []


def test_every_tab_shows_its_first_picture_at_once_while_the_library_has_not_run(opened, real):
    page = opened(real)
    page.evaluate("waiting.disconnect()")
    for name in page.evaluate("tabs.map((tab) => tab.id.slice(4)).filter((name) => document.querySelector(`#t-${name} figure`))"):
        shown = page.evaluate(
            "(name) => { const began = performance.now(); document.getElementById(`tab-${name}`).click();"
            " const box = document.querySelector(`#t-${name} figure svg.picture`).getBoundingClientRect();"
            " return [box.width, box.height, performance.now() - began]; }",
            name,
        )
        assert shown[0] > 200, name
        assert shown[1] > 40, name
        assert shown[2] < 500, name
    page.evaluate("go('#t-training')")
    page.evaluate("draw(figures().find(seen))")
    assert page.evaluate("figures().find(seen).querySelectorAll('svg.still').length") == 0


def test_a_colour_means_one_thing_and_names_stay_apart(opened, real):
    page = opened(real)
    assert not page.evaluate("COLOURS.includes(colour(ALARM))")
    bars = "drawn(document.getElementById('c-both_answers'), 400).traces[0].marker.color === colour('--dim')"
    assert page.evaluate(bars)
    names = [f"model.layers.{layer}.self_attn.{part}_proj.weight" for layer in (1, 11) for part in "qk"]
    short = page.evaluate("(names) => names.map((name) => tensor(name, 22))", names)
    assert len({*short}) == len(names)
    assert max(map(len, short)) <= 22


def test_no_legend_lies_on_the_numbers_of_an_axis(opened, real):
    page = opened(real, width=390, address="#c-loss")
    drawn(page, "loss")
    edges = page.evaluate(
        "['.legend', '.xaxislayer-above'].map((part) => document.querySelector(`#c-loss ${part}`).getBoundingClientRect())"
        ".map((box) => [box.top, box.bottom])"
    )
    assert edges[0][0] >= edges[1][1]


def test_only_what_is_looked_at_is_read_and_drawn(opened, real):
    page = opened(real)
    assert page.evaluate("[parsed.size, figures().filter((figure) => figure.dataset.drawn === 'yes').length]") == [0, 0]
    page.evaluate("go('#t-training')")
    drawn(page, "loss")
    assert page.evaluate("[...parsed.keys()]") == ["training"]
    first, last = page.evaluate("(all => [all[0], all.at(-1)])(figures().filter(seen).map((each) => each.dataset.drawn || ''))")
    assert (first, last) == ("yes", "")


def test_sliders_and_choices_change_the_picture(opened, real):
    page = opened(real, address="#t-movement")
    for figure in page.locator("#t-movement figure:has(input.step)").all():
        figure.scroll_into_view_if_needed()
        chart = figure.get_attribute("data-chart")
        drawn(page, chart)
        cells = "(id) => JSON.stringify(document.querySelector(`#c-${id} .plot`)._fullData[0].z)"
        last, before = page.evaluate(cells, chart), figure.locator("output").inner_text()
        figure.locator("input.step").focus()
        page.keyboard.press("Home")
        assert figure.locator("output").inner_text() != before
        assert page.evaluate(cells, chart) != last
        first = page.evaluate(cells, chart)
        figure.locator("select.where").select_option(index=1)
        assert page.evaluate(cells, chart) != first


def test_the_keyboard_walks_through_the_tabs(opened):
    page = opened(render(told(), pictures()))
    page.locator("#tab-overview").focus()
    shown = "panels.filter((panel) => !panel.hidden).map((panel) => panel.id)[0]"
    for key, panel in (
        ("ArrowDown", "training"),
        ("ArrowRight", "unjudged"),
        ("End", "steps"),
        ("ArrowDown", "overview"),
        ("ArrowUp", "steps"),
        ("Home", "overview"),
    ):
        page.keyboard.press(key)
        assert page.evaluate(shown) == f"t-{panel}"
        assert page.evaluate("document.activeElement.id") == f"tab-{panel}"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "t-overview"


def test_a_finding_leads_to_its_chart_and_step(opened):
    html = render(told(), pictures())
    page = opened(html)
    page.locator("#t-overview .findings a[data-step='20']").last.click()
    figure = drawn(page, "loss")
    assert figure.evaluate("figure => figure === document.activeElement")
    shapes = "document.querySelector('#c-loss .plot')._fullLayout.shapes"
    pointers = f"{shapes}.filter((shape) => shape.line.width === 2).map((shape) => shape.x0)"
    assert page.evaluate(pointers) == [20]
    assert page.evaluate("location.hash") == "#c-loss@20"
    again = opened(html, address="#c-loss@20")
    drawn(again, "loss")
    assert again.evaluate(pointers) == [20]


def test_missing_and_not_finite_are_drawn_apart(opened):
    page = opened(render(told(), pictures()), address="#t-training")
    drawn(page, "loss")
    traces = page.evaluate("document.querySelector('#c-loss .plot')._fullData.map((t) => [t.name, t.x, t.y, t.text])")
    assert ["loss of A loss", [10, 20, 30], [3, None, None]] in [each[:3] for each in traces]
    assert [[20], "loss: recorded, but not finite"] in [[each[1], each[3][0]] for each in traces if each[3]]
    page.evaluate("draw(document.getElementById('c-map'))")
    texts = page.evaluate("document.querySelector('#c-map .plot')._fullData[0].text")
    assert [each.rsplit(": ", 1)[1] for row in texts for each in row] == ["1.000", "Infinity", "not recorded", "0.000"]


def test_names_with_html_and_scripts_do_nothing(opened):
    words = " ".join(HOSTILE)
    page = opened(render(told(words), pictures(words)), address="#t-training")
    page.evaluate("figures().forEach((figure) => draw(figure, 600))")
    for place in ("select.where", "button.to"):
        for control in page.locator(f"#t-training {place}").all():
            control.evaluate("each => { const fold = each.closest('details'); if (fold) fold.open = true; each.click(); }")
    page.locator("#c-loss .plot").hover()
    assert page.evaluate("window.hit") is None
    assert page.locator("img, main a[href^='javascript'], svg a, svg b").count() == 0


def test_print_shows_every_tab_in_light_colours(opened, real):
    page = opened(real, color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("panels.every((panel) => panel.hidden === panel.matches('.dashboard'))")
    drawn_first = "[...document.querySelectorAll('.question .charts > figure:first-child')].map((figure) => figure.dataset.drawn)"
    assert set(page.evaluate(drawn_first)) == {"yes"}
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("panels.filter((panel) => !panel.hidden).length") == 1


def test_without_scripts_everything_but_the_pictures_is_there(browser, path):
    path.write_text(render(told(), pictures()), encoding="utf-8", newline="")
    context = browser.new_context(offline=True, java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    text = page.locator("body").inner_text()
    context.close()
    assert all(
        words in text
        for words in ("What is wrong?", "Is it training?", "What could not be judged?", "Most pictures need scripts")
    )


def test_a_report_prints_on_twelve_pages(opened, real):
    page = opened(real)
    printed = page.pdf(format="A4")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 12


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390], ids=["desk", "phone"])
def test_the_loss_is_there_without_scripts_and_fits(browser, real, path, width, scheme):
    path.write_text(real, encoding="utf-8", newline="")
    with browser.new_context(
        offline=True, java_script_enabled=False, viewport={"width": width, "height": 900}, color_scheme=scheme
    ) as context:
        page = context.new_page()
        page.goto(path.as_uri())
        (seen,) = [each for each in page.locator(".front svg.wide, .front svg.narrow").all() if each.is_visible()]
        box = seen.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["y"] + box["height"] <= 900  # it stands on the first screen
        sizes = [float(text.bounding_box()["height"]) for text in seen.locator("text.end").all()]
        assert min(sizes) >= 10  # letters that can be read


def test_a_mark_on_the_loss_leads_to_its_finding(opened, real):
    page = opened(real)
    mark = page.locator(".front svg.wide .mark[data-finding]").first
    place = mark.get_attribute("data-finding")
    mark.click()
    assert page.evaluate("document.activeElement.id") == f"f-{place}"
    assert page.evaluate("location.hash") == f"#f-{place}"


def test_letters_of_a_picture_do_not_overlap(opened, real):
    page = opened(real)
    for drawn in page.locator("#t-overview svg.picture").all():
        if not drawn.is_visible():
            continue
        boxes = [text.bounding_box() for text in drawn.locator("text:not(.halo):not(.count)").all()]
        flat = [(box["x"], box["y"], box["x"] + box["width"], box["y"] + box["height"]) for box in boxes]
        for first, second in combinations(flat, 2):
            across = min(first[2], second[2]) - max(first[0], second[0])
            down = min(first[3], second[3]) - max(first[1], second[1])
            assert across <= 1 or down <= 4, (first, second)


PAINTED = """() => [...document.querySelectorAll("svg, svg *:not(style, title)")].map((each) => {
  const look = getComputedStyle(each);
  return ["fill", "stroke", "strokeWidth", "strokeDasharray", "strokeLinejoin", "opacity", "paintOrder", "textAnchor",
    "fontFamily", "fontSize", "fontWeight"].map((name) => look[name]).join("|");
})"""


@pytest.mark.parametrize("runs", [("nan_batch",), ("lr_too_high", "healthy")], ids="-".join)
def test_a_picture_looks_the_same_where_styles_are_forbidden(browser, tmp_path, runs):
    sides = [judge(RUNS / name, None, NO_IMPORT_OPTIONS, OPEN, beside=len(runs) > 1) for name in runs]
    whole = tmp_path / "whole.svg"
    whole.write_text(picture.render(sides[0].report, draw(*sides)), encoding="utf-8")
    bare = tmp_path / "bare.svg"
    bare.write_text(re.sub(r"<style>.*?</style>", "", whole.read_text(encoding="utf-8"), flags=re.DOTALL), encoding="utf-8")
    looks = {}
    for scheme in ("light", "dark"):
        with browser.new_context(offline=True, color_scheme=scheme) as context:
            page = context.new_page()
            for path in (whole, bare):
                page.goto(path.as_uri())
                looks[path.stem, scheme] = page.evaluate(PAINTED)
    assert len(looks["bare", "light"]) > 100
    assert looks["bare", "light"] == looks["whole", "light"] == looks["bare", "dark"]
    assert looks["whole", "dark"][0] != looks["whole", "light"][0]
