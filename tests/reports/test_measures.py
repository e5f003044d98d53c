"""Measured values as people read them: aligned, cut where there are many, and harmless whatever their names."""

from ckaudit.contract.measures import Measure, gathered
from ckaudit.reports.measures import render
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
    assert [line.index("%") for line in table] == [table[0].index("%")] * 3
    assert table[2].split() == ["near_dup_rate", "4.50", "%", "1.00", "to", "10.00", "%"]


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
