"""The quick way through a table and the careful one read the same, and the quick one steps back from anything odd."""

import random
from contextlib import suppress

import numpy as np
import pytest

from ckaudit.errors import UnreadableError
from ckaudit.importers.tables import table
from ckaudit.importers.tables.table import plain_columns, read_numbers
from tests.loops import for_each

HEADER = ["step", "loss", "note", "lr"]
CELLS = [
    "1",
    "2.5",
    "-3e-5",
    "",
    "nan",
    "NaN",
    "inf",
    "-Infinity",
    "1e400",
    "5e-324",
    "0.1",
    "123456789.123456789",
    "9007199254740993",
]
ODD = ['"2"', "x", " 7 ", "+1", "1_0", "0x1", "nan(1)", "1,5", "1;5", "\x85", "é", "٣", "- ", "None", "1e", "--"]


@pytest.fixture(autouse=True)
def short_files_too(monkeypatch):
    monkeypatch.setattr(table, "LEAST_BYTES", 1)


def both_ways(data, monkeypatch, delimiter=","):
    quick = read_numbers(data, "log.csv", HEADER, {0, 1, 3}, delimiter)
    with monkeypatch.context() as patch:
        patch.setattr(table, "plain_columns", lambda *_: None)
        careful = read_numbers(data, "log.csv", HEADER, {0, 1, 3}, delimiter)
    assert quick.notes == careful.notes
    assert list(quick.lines) == list(careful.lines)
    for position, column in careful.columns.items():
        np.testing.assert_array_equal(quick.columns[position].recorded, column.recorded)
        np.testing.assert_array_equal(quick.columns[position].values, column.values)
    return quick


@for_each("seed", range(200))
@for_each("end", ["\n", "\r\n"])
def test_plain_files_are_read_alike(seed, end, monkeypatch):
    source = random.Random(seed)
    rows = [HEADER, *([source.choice(CELLS) for _ in HEADER] for _ in range(source.randrange(1, 20)))]
    data = "".join(",".join(row) + end for row in rows).encode()
    assert plain_columns(data, 4, {0, 1, 3}, ",") is not None
    both_ways(data, monkeypatch)


@for_each("seed", range(300))
def test_odd_files_are_read_alike(seed, monkeypatch):
    source = random.Random(seed)
    rows = [HEADER, ["1", "2", "3", "4"]]
    for _ in range(source.randrange(1, 8)):
        width = source.choice([4, 4, 4, 4, 3, 5, 0])
        rows.append([source.choice(ODD if source.random() < 0.3 else CELLS) for _ in range(width)])
    delimiter = source.choice([",", ";", "\t"])
    data = source.choice(["\n", "\r\n", "\n\n", "\r"]).join(delimiter.join(row) for row in rows).encode()
    with suppress(UnreadableError):  # with most rows wider than the header, which only the careful way says
        both_ways(data + source.choice([b"", b"\n", b"\r\n", b"\0"]), monkeypatch, delimiter)


@pytest.mark.parametrize(
    "body",
    [
        "1,2,3\n",
        "1,2,3,4,5\n",
        "1,2,3,4\n\n1,2,3,4\n",
        '1,"2",3,4\n',
        "1,x,3,4\n",
        "1, ,3,4\n",
        "1,nan(7),3,4\n",
        "1,2,3,4",
        "1,2\r,3,4\n",
    ],
)
def test_whatever_is_odd_is_left_to_the_careful_way(body):
    assert plain_columns(f"step,loss,note,lr\n1,2,3,4\n{body}".encode(), 4, {0, 1, 3}, ",") is None


def test_a_short_file_does_not_load_pyarrow(monkeypatch):
    monkeypatch.setattr(table, "LEAST_BYTES", 2**18)
    assert plain_columns(b"step,loss\n1,2\n", 2, {0, 1}, ",") is None


def test_words_in_a_column_that_nobody_wants_do_not_matter():
    columns, rows = plain_columns(b"step,loss,note,lr\n1,2,hello,4\n2,,oops,5\n", 4, {0, 1, 3}, ",")
    assert rows == 2
    assert columns[1].recorded.tolist() == [True, False]
    assert columns[3].values.tolist() == [4.0, 5.0]
