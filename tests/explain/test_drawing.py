"""Every name in every format, and three pages letter by letter. `CKAUDIT_GOLDEN=1 pytest tests/explain` rewrites the files."""

import json
import os
import re
from functools import cache
from pathlib import Path

import pytest

from ckaudit.explain import explain, groups, known_names
from ckaudit.metrics.catalogue import entries
from ckaudit.reports import FEW_FORMATS, render
from ckaudit.reports.formula import readable
from ckaudit.reports.terminal.explain import resampled, sketch
from ckaudit.reports.view import PLAIN, View
from tests.loops import for_each

GOLDEN = Path(__file__).parent / "golden"
CASES = {
    "wide.txt": (["M19", "LOSS001"], View(width=110)),
    "narrow.txt": (["F6", "missing_warmup"], View(width=60)),
    "ascii.txt": (["attn_entropy", "VAL009"], View(width=80, unicode=False)),
}


@cache
def everything():
    return explain(known_names())


def squeezed(text):
    return re.sub(r"\s+", "", text)


@pytest.mark.parametrize("file", CASES)
def test_the_page_is_the_one_on_file(file):
    names, view = CASES[file]
    drawn = render(explain(names), "terminal", view, kind="Pages")
    path = GOLDEN / file
    if os.environ.get("CKAUDIT_GOLDEN"):
        path.write_text(drawn, encoding="utf-8", newline="\n")
    assert drawn.encode() == path.read_bytes()


@for_each("name", known_names())
def test_every_page_shows_title_formula_and_alert_in_every_format(name):
    pages = explain([name])
    screen, machine, document = (render(pages, kind, PLAIN, kind="Pages") for kind in ("terminal", "json", "markdown"))
    told = json.loads(machine)["pages"]
    for page, same in zip(pages, told, strict=True):
        assert same["title"] == page.title
        assert [each["tex"] for each in same["formulas"]] == [formula.tex for formula in page.formulas]
        for formula in page.formulas:
            assert f"$${formula.tex}$$" in document
            for line in readable(formula.tex).splitlines():
                assert squeezed(line) in squeezed(screen)
        words = squeezed(re.sub(r"\$.*?\$", "", page.title).split("`")[0])
        assert words in squeezed(screen)
        if "alert" in page.facts:
            assert squeezed(page.facts["alert"]) in squeezed(screen)
            assert same["facts"]["alert"] == page.facts["alert"]


@pytest.mark.parametrize(("width", "unicode"), [(40, True), (40, False), (60, True), (80, False), (200, True)])
def test_no_line_is_wider_than_the_screen(width, unicode):
    from rich.cells import cell_len

    view = View(width=width, unicode=unicode)
    found = everything()
    unbroken = {f"    {page.line}" for page in found}  # to be copied
    text = render(found, "terminal", view, kind="Pages") + render(groups(), "terminal", view, kind="Groups")
    for line in text.splitlines():
        assert cell_len(line) <= width or line in unbroken, line
        assert unicode or line.isascii()


def test_colour_only_where_asked_for():
    assert "\x1b[" not in render(explain(["mfu"]), "terminal", PLAIN, kind="Pages")
    assert "\x1b[1m" in render(explain(["mfu"]), "terminal", PLAIN._replace(colour=True), kind="Pages")


def test_both_series_share_an_axis():
    """A bounded logit stays at the bottom beside one ten times larger."""
    (page,) = explain(["max_attn_logit"])
    drawn = sketch(page.shapes, PLAIN, 60)
    top, *_, bottom = drawn[:4]
    assert drawn[-1] == "an example, from 80 to 1150"
    assert not top[:28].strip()
    assert top.strip()
    assert bottom[:28].strip()


def test_resampling_keeps_ends_and_lines():
    assert resampled([1.0, 3.0], 5) == [1.0, 1.5, 2.0, 2.5, 3.0]
    found = resampled([5.1, 3.9, 3.2, 3.8, 2.9, 3.6], 40)
    assert (found[0], found[-1], len(found)) == (5.1, 3.6, 40)


@pytest.mark.parametrize("kind", FEW_FORMATS)
def test_the_list_names_everything(kind):
    text = render(groups(), kind, PLAIN, kind="Groups")
    assert text.endswith("\n")
    shown = text.replace("&#95;", "_")
    assert all(line.name in shown for group in groups() for line in group.lines)


def test_markdown_tables_keep_their_columns():
    document = render(explain(list(entries())), "markdown", PLAIN, kind="Pages")
    rows = [line for line in document.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {3}
