"""The site is whole, has every page of docs/, and a browser that has no network can read and search it."""

import os
import re
import runpy
import shutil
import tomllib
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def builder(script):
    if not (ROOT / "docs" / "generated").is_dir():  # a fresh clone
        runpy.run_path(str(ROOT / "docs" / "make.py"), run_name="__main__")
    return script("build_site")


@pytest.fixture(scope="module")
def site(builder, tmp_path_factory):
    pytest.importorskip("zensical", reason="pip install -e '.[docs]'")
    return builder.build(tmp_path_factory.mktemp("build"))


def placed(navigation):
    """Yield every page that a navigation names."""
    for entry in navigation:
        for goal in entry.values():
            yield from [goal] if isinstance(goal, str) else placed(goal)


def test_every_document_is_a_page_and_every_entry_of_the_navigation_has_one(builder):
    pages = {str(place) for place in builder.gathered()}
    documents = [path for pattern in ("*.md", "decisions/*.md") for path in (ROOT / "docs").glob(pattern)]
    assert {path.relative_to(ROOT / "docs").as_posix() for path in documents} <= pages
    named = [*placed(tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"])]
    assert set(named) - {name for name in named if name.startswith("generated/")} <= pages
    assert len(named) == len(set(named)) > 35


def test_what_a_page_links_to_outside_of_docs_becomes_a_page_of_its_own(builder):
    pages = builder.gathered()
    assert "](clone/schemas/ck.watch.v1.schema.json.md)" in pages[PurePosixPath("watch.md")]
    schema = pages[PurePosixPath("clone/schemas/ck.watch.v1.schema.json.md")]
    assert (ROOT / "schemas" / "ck.watch.v1.schema.json").read_text(encoding="utf-8").rstrip() in schema
    folder = pages[PurePosixPath("clone/examples/plugin/index.md")]
    assert "## `examples/plugin/ckaudit_guessing/__init__.py`" in folder


def test_headings_have_the_anchors_of_github(builder, tmp_path, monkeypatch):
    monkeypatch.setattr(builder, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    text = "# A `b` c\n\n## Twice\n\n## Twice\n\n```sh\n# no heading\n```\n\n## [Linked](other.md), right?\n"
    (tmp_path / "docs" / "page.md").write_text(text, encoding="utf-8")
    (tmp_path / "docs" / "other.md").write_text("# Other\n", encoding="utf-8")
    written = builder.gathered()[PurePosixPath("page.md")].splitlines()
    anchors = [line.rpartition("{#")[2].removesuffix("}") for line in written if "{#" in line]
    assert anchors == ["a-b-c", "twice", "twice-1", "linked-right"]
    assert "# no heading" in written


def test_a_list_below_a_paragraph_begins_as_on_github(builder):
    decision = builder.gathered()[PurePosixPath("decisions/0022-one-verdict.md")]
    assert "**Decision.**\n\n- One table" in decision
    assert "(`covered_by`).\n- Rules and questions" in decision


def test_a_link_that_leads_to_nothing_stops_the_build(builder, tmp_path, monkeypatch):
    monkeypatch.setattr(builder, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("[a](gone.md) `[code](is-none.md)` [up](../../outside.md)\n", encoding="utf-8")
    with pytest.raises(SystemExit) as stopped:
        builder.gathered()
    assert str(stopped.value).splitlines()[1:] == ["  docs/page.md: gone.md", "  docs/page.md: ../../outside.md"]


def test_links_and_what_is_fetched_are_seen_in_the_pages(builder, tmp_path):
    (tmp_path / "a.html").write_text(
        '<h1 id="here">A</h1><a href="b.html#there">b</a><a href="#here">h</a><a href="b.html#gone">x</a><a href="c.html">c</a>'
        '<a href="https://example.org">far</a><script src="https://cdn.example/x.js"></script>',
        encoding="utf-8",
    )
    (tmp_path / "b.html").write_text('<p id="there"></p><link rel="stylesheet" href="//fonts.example/f.css">', encoding="utf-8")
    (tmp_path / "s.css").write_text('@import "https://fonts.example/a.css"; a { background: url(own.svg) }', encoding="utf-8")
    assert [*builder.broken_links(tmp_path)] == ["a.html: b.html#gone", "a.html: c.html"]
    loaded = {"a.html: https://cdn.example/x.js", "b.html: //fonts.example/f.css", "s.css: https://fonts.example/a.css"}
    assert {*builder.fetched(tmp_path)} == loaded


def test_the_site_is_built_without_a_warning_and_has_all_pages(builder, site):
    missing = [place for place in builder.gathered() if not (site / place.with_suffix(".html")).is_file()]
    assert [place for place in missing if place.name != "README.md"] == []
    assert (site / "decisions" / "index.html").is_file()
    formulas = (site / "generated" / "metrics.html").read_text(encoding="utf-8")
    assert formulas.count("<math ") > 150
    assert "$$" not in formulas
    assert not [*builder.broken_links(site)]
    assert not [*builder.fetched(site)]


@pytest.fixture(scope="module")
def browser():
    """A browser, or a skip where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the browser is driven by the package playwright")
    chromium = os.environ.get("CKAUDIT_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no Chromium here: install it, or name it in CKAUDIT_CHROMIUM")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--no-zygote", "--in-process-gpu"])
        yield started
        started.close()


@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(
    ("width", "scheme", "names"),
    [(1280, "light", ("recording", "comparison")), (1280, "dark", ("recording",)), (390, "light", ("index", "comparison"))],
)
def test_nothing_serious_keeps_a_reader_from_a_page(site, browser, width, scheme, names):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    for name in names:
        page.goto((site / f"{name}.html").as_uri())
        told = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]  # of what is right only one example
        found = [v for v in told if v["impact"] in ("serious", "critical")]
        assert not [(name, v["id"], v["nodes"][0]["target"]) for v in found]
    page.close()


@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_browser_without_a_network_reads_and_searches_the_site(site, browser):
    asked, errors = [], []
    page = browser.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    for name in ("index", "tutorial", "gallery", "comparison", "generated/options", "generated/metrics"):
        page.goto((site / f"{name}.html").as_uri())
        for width, scheme in ((1280, "light"), (390, "dark")):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()
    page = browser.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.keyboard.press("/")
    page.keyboard.type("dead_path")
    page.get_by_text("results").first.wait_for(timeout=20_000)
    page.close()
    assert not errors
    assert not [url for url in asked if url.partition(":")[0] not in ("file", "blob", "data")]


def test_the_options_of_every_command_stand_under_its_name(script):
    from typer.main import get_command

    from ckaudit.cli.app import COMMANDS, build

    text = script("make").options()
    headings = re.findall(r"^## ckaudit (.+)$", text, flags=re.MULTILINE)
    groups = {name: group.commands for name, group in get_command(build()).commands.items() if hasattr(group, "commands")}
    assert headings == [*COMMANDS, *(f"{name} {command}" for name, commands in groups.items() for command in commands)]
    assert text.count("\nUsage: ckaudit ") == len(headings) == text.count("Exit codes:")
    assert "--fail-on SEVERITY" in text
