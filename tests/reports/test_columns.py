"""Tables of the lab: no line is wider than the screen, and no cell is lost."""

import pytest

from ckaudit.reports.lab.terminal import room, table, widths
from ckaudit.reports.view import View

PLAIN = View(width=60)


def test_cells_are_wrapped_where_they_may_be() -> None:
    rows = [("name", "what"), ("a_name", "six words of five letters each")]
    assert table(rows, 24, PLAIN, min_widths={1: 10}) == [
        "name    what",
        "a_name  six words of",
        "        five letters",
        "        each",
    ]


@pytest.mark.parametrize("width", [12, 20, 27, 60])
def test_columns_that_find_no_room_go_on_below_with_the_names_of_the_rows(width: int) -> None:
    rows = [("", "first", "second", "third"), ("one", "1", "22", "333"), ("two", "4444", "5", "6")]
    lines = table(rows, width, PLAIN, min_widths={})
    assert max(map(len, lines)) <= width
    blocks = "\n".join(lines).split("\n\n")
    heads = [block.splitlines()[0].split() for block in blocks]
    assert [word for head in heads for word in head] == ["first", "second", "third"]
    assert [word for block in blocks for word in block.splitlines()[1].split()[1:]] == ["1", "22", "333"]
    assert all(block.splitlines()[2].startswith("two") for block in blocks)


def test_the_column_with_most_to_spare_gives_way_first() -> None:
    rows = [("n" * 6, "t" * 20, "x" * 50)]
    assert widths(rows, 60, {1: 14, 2: 30}) == [6, 17, 33]  # 3 above the least of each


@pytest.mark.parametrize(("given", "columns"), [(None, 100), (40, 60), (60, 60), (90, 90), (300, 130)])
def test_room_is_that_of_the_screen_within_limits(given: int | None, columns: int) -> None:
    assert room(View(width=given)) == columns


def test_only_the_heading_is_bold() -> None:
    lines = table([("a", "b"), ("c", "d")], 60, View(colour=True), min_widths={})
    assert lines == ["\x1b[1ma  b\x1b[0m", "c  d"]
