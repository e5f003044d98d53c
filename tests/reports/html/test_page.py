"""The page as text: what may run in it, what names can do in it, and that its links lead somewhere."""

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckaudit.errors import CkauditError
from ckaudit.optional import install_command
from ckaudit.reports.escape import UNSAFE
from ckaudit.reports.html import SIGNATURE, page, render
from ckaudit.reports.html.charts import summarized
from tests.reports.html.drawn import HOSTILE, pictures, told

ROOM = Path(page.__file__).parent
VOID = {"meta", "input", "br", "hr", "link"}


class Page(HTMLParser):
    """Elements with their attributes, the text of scripts, and all other text; an end without a beginning is an error."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.open, self.scripts, self.text = [], [], [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
            if tag == "script":
                self.scripts.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif not (self.open and self.open[-1] == "style"):
            self.text.append(data)

    def all(self, attribute):
        return [attributes[attribute] for _, attributes in self.elements if attribute in attributes]


def named(text):
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def rules(page):
    content = next(each["content"] for tag, each in page.elements if each.get("http-equiv") == "Content-Security-Policy")
    return {rule.split()[0]: set(rule.split()[1:]) for rule in content.split("; ")}


def test_only_the_scripts_of_the_page_may_run_and_nothing_may_leave():
    whole = render(told(), pictures())
    page = Page(whole)
    kinds = [attributes.get("type") for tag, attributes in page.elements if tag == "script"]
    packed, runs = (
        page.scripts[kinds.index("application/gzip")],
        [each for each, kind in zip(page.scripts, kinds, strict=True) if not kind],
    )
    library = gzip.decompress(base64.b64decode(packed)).decode()
    policy = rules(page)
    assert policy["script-src"] == {named(library), *map(named, runs)}
    (style,) = re.findall("<style>(.*?)</style>", whole, re.DOTALL)
    assert policy["style-src"] == {named(""), named(style)}
    assert (policy["default-src"], policy["img-src"], policy["base-uri"]) == ({"'none'"}, {"data:"}, {"'none'"})
    assert not {"connect-src", "worker-src", "frame-src"} & set(policy)
    assert "unsafe" not in str(policy)
    assert not page.all("style")
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert not page.all("src")
    assert all(link.startswith("#") for link in page.all("href"))


def test_the_library_is_the_one_of_its_package():
    import plotly

    script = (Path(plotly.__file__).parent / "package_data" / "plotly.min.js").read_bytes()
    assert gzip.decompress(base64.b64decode(page.library().packed)) == script


def test_without_the_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(page, "find_spec", lambda name: None)
    page.library.cache_clear()
    with pytest.raises(CkauditError) as caught:
        page.library()
    assert caught.value.hint == install_command("report")


def test_every_link_label_and_control_has_its_target_and_no_name_is_used_twice():
    page = Page(render(told(), pictures()))
    names = page.all("id")
    assert len(names) == len(set(names))
    targets = [link[1:] for link in page.all("href")] + page.all("aria-controls") + page.all("aria-labelledby")
    assert set(targets) <= set(names)
    assert {"c-loss", "t-unjudged", "t-overview"} <= set(targets)
    finding = next(each for tag, each in page.elements if tag == "a" and each["href"] == "#c-loss")
    assert finding["data-step"] == "20"


def test_a_chart_says_metric_formula_unit_and_note():
    text = " ".join(Page(render(told(), pictures("beware"))).text)
    for words in ("train_loss_raw", "L = Σᵢ lᵢ", "nats/token", "beware"):
        assert words in text


DRAWN = ("g", "line", "path", "polyline", "circle", "rect", "text")  # how many there are hangs on how long a legend is


def of_page(page):
    return [(tag, tuple(sorted(attributes))) for tag, attributes in page.elements if tag not in DRAWN]


SAME = of_page(Page(render(told("x"), pictures("x"))))


def harmless(words):
    whole = render(told(words), pictures(words))
    page = Page(whole)
    assert of_page(page) == SAME
    assert not [name for tag, attributes in page.elements if tag in DRAWN for name in attributes if name.startswith("on")]
    assert not set(UNSAFE.findall(whole)) - {"\n"}
    block = page.scripts[[each.get("type") for tag, each in page.elements if tag == "script"].index("application/json")]
    assert len(json.loads(block)["charts"]) == 5
    assert not re.search("[<>&]", block)


@pytest.mark.parametrize("words", HOSTILE)
def test_names_change_nothing_but_text(words):
    harmless(words)


@settings(max_examples=15, deadline=None)
@given(words=st.text(st.characters(), min_size=1, max_size=30))
def test_no_name_whatever_changes_anything_but_text(words):
    if words not in ("loss", "other", "val", "b"):
        harmless(words)


def test_a_table_tells_not_recorded_from_not_finite():
    assert summarized(["1", "2", "3"], [None, None, None]) == ("", "", "", "", "0", "3")
    assert summarized(["1", "2", "3"], ["NaN", 2.0, None]) == ("NaN at 1", "2 at 2", "2 at 2", "2 at 2", "1", "1")
    page = " ".join(Page(render(told(), pictures())).text)
    assert "3 at 10 NaN at 20 3 at 10 3 at 10 1 1" in re.sub(r"\s+", " ", page)


def test_scripts_and_styles_stay_short():
    lengths = {path.name: len(path.read_text().splitlines()) for path in ROOM.iterdir() if path.suffix in (".js", ".css")}
    assert set(lengths) == {*page.OWN, "start.js", "report.css"}
    assert max(lengths.values()) <= 300
    assert all(re.match(r"// [A-Z].*\.\n", (ROOM / name).read_text()) for name in lengths if name.endswith(".js"))


def test_a_file_of_ours_is_known_by_its_beginning():
    assert render(told(), pictures()).startswith(SIGNATURE)
