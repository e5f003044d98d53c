"""Measured values as people read them: aligned, cut where there are many, and harmless whatever their names."""

import pytest

from ckaudit.contract.schema.raw_measurements import Measure, Missing, gathered
from ckaudit.reports.measures import render
from ckaudit.reports.terminal.screen_text import columns
from ckaudit.reports.view import View


def shares(count, name="web"):
    return [
        Measure(name=f"source_mix_share/{name}{number}", row="M29", value=1 / count, unit="1", points=9)
        for number in range(count)
    ]


def lines(measures, **view):
    return render(gathered("data", "x", measures), "terminal", View(**view)).splitlines()


def test_values_stand_below_each_other():
    measures = [*shares(2, "größe"), Measure(name="near_dup_rate", row="M36", value=4.5, unit="%", points=9, low=1.0, high=10.0)]
    table = lines(measures)[2:]
    assert [line.split()[1] for line in table] == ["0.5", "0.5", "4.50"]
    assert [line.index("0.5") + 3 for line in table[:2]] == [table[2].index("4.50 %") + 6] * 2
    assert table[2].split() == ["near_dup_rate", "4.50", "%", "1.00", "to", "10.00", "%"]


WORDS = "documents with a near duplicate: a Jaccard index of 0.8 or more over runs of 5 words"


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100, 140])
def test_no_line_is_wider_than_the_screen_and_no_word_is_lost(width):
    rate = Measure(
        name="near_dup_rate", row="M36", value=4.5, unit="%", points=9, low=1.0, high=10.0, reference=3.0, detail=WORDS
    )
    missing = Missing(name="pad_fraction", row="M34", reason="not_recorded", detail="no column attention_mask " * 9)
    found = gathered("data", "/a/long/path/of/a/sample.jsonl", [rate, *shares(2, "größe"), missing], notes=["a note " * 30])
    text = render(found, "terminal", View(width=width))
    assert max(columns(line) for line in text.splitlines()) <= width
    for words in (WORDS, missing.detail, found.notes[0], "4.50 %", "1.00 to 10.00 %", "3.00 %"):
        assert " ".join(words.split()) in " ".join(text.split()), words


def test_a_share_reads_as_it_does_in_a_run_and_a_rate_in_percent():
    share = Measure(name="rtp_toxicity_prob", row="M49", value=2 / 3, unit="1", points=3, low=0.2077, high=0.9385)
    assert lines([share])[2].split() == ["rtp_toxicity_prob", "0.6667", "0.2077", "to", "0.9385"]


def test_of_many_labels_the_first_are_shown_and_the_rest_counted():
    table = lines(shares(30))[2:]
    assert len(table) == 12
    assert table[-1].endswith("and 18 more: -v, or --format json")
    assert len(lines(shares(30), verbose=True)[2:]) == 30
    assert len(lines(shares(12))[2:]) == 12


def test_no_name_steers_a_terminal_or_markdown():
    measures = shares(1, "\x1b[31m|<b>\u202e")
    assert "\x1b" not in "".join(lines(measures))
    assert "\\u202e" in "".join(lines(measures))
    written = render(gathered("data", "<img>|x", measures), "markdown")
    assert "<b>" not in written
    assert "<img>" not in written
    assert written.count("|") == 18


def test_without_values_there_is_no_table():
    assert lines([]) == ["x: 0 records in 0 files"]
    assert "| name |" not in render(gathered("data", "x", []), "markdown")
