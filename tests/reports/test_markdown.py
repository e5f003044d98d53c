import html
import re

import msgspec
import pytest
from markdown_it import MarkdownIt

from ckaudit.reports import render
from ckaudit.reports.escape import code, escaped
from ckaudit.reports.view import View
from tests.reports.sample import HOSTILE, SAMPLES, clean, empty, gated, ill, invalid


def plain(markdown):
    return html.unescape(markdown.replace("<!-- -->", ""))


@pytest.mark.parametrize(
    "raw",
    ["a|b", "`x`", "**b**", "<script>", "[a](b)", "# h", "@all", "https://x.y", "www.x.y", "&amp;", "a_b_c", "$x$", "~~a~~"],
)
def test_markup_is_shown_and_not_obeyed(raw):
    assert plain(escaped(raw)) == raw
    assert not re.search(r"[|`*_<\[\]]|@\w|://|www\.", escaped(raw).replace("<!-- -->", "\0"))


def test_a_name_full_of_tricks_stays_one_table_cell():
    row = f"| {code(HOSTILE)} | b |"
    assert row.count("|") == 3
    assert "\x1b" not in row


@pytest.mark.parametrize("report", [ill(), invalid()])
def test_every_table_row_has_the_cells_of_its_head(report):
    rows = [line for line in render(report, "markdown").splitlines() if line.startswith("|")]
    assert len(rows) > 3
    assert {line.count("|") for line in rows} == {5}


def test_long_lists_are_cut_and_counted():
    report = invalid()
    many = msgspec.structs.replace(report, findings=report.findings * 10)
    assert "... and 40 more: 50 sev1, 10 sev2 in all" in render(many, "markdown")
    assert "more" not in render(many, "markdown", View(verbose=True))


def test_the_badge_tells_clean_from_not_judged():
    assert "**OK** Nothing found" in render(clean(), "markdown")
    assert "**NOT JUDGED**" in render(empty(), "markdown")


def rendered(report, view=None):
    return MarkdownIt("commonmark", {"html": True}).enable("table").render(render(report, "markdown", view or View()))


@pytest.mark.parametrize("name", SAMPLES)
def test_a_renderer_makes_tables_and_no_tag_of_a_name(name):
    page = rendered(SAMPLES[name]())
    tags = set(re.findall(r"<(\w+)", page))
    assert tags <= {
        "h3",
        "strong",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "code",
        "br",
        "details",
        "summary",
        "ul",
        "li",
        "p",
        "sub",
        "pre",
    }
    assert "|--" not in page
    assert len(re.findall("<tr>", page)) == len(re.findall("</tr>", page))


def test_accepted_findings_are_a_folded_table_of_their_own():
    page = rendered(gated())
    folded = page[page.index("<summary>Accepted: 2 findings</summary>") :]
    assert folded.count("<tr>") == 3
    assert "accepted in known.json" in folded
    assert "2 findings do not count" in page
    assert "Accepted" not in rendered(ill())


def test_a_cause_says_since_when():
    assert "<code>since step 476</code>" in rendered(ill())
