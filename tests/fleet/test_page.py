"""What the page on fleets says of the data set is so: its tables and columns, and how others read them."""

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ckaudit.fleet.dataset import TABLES
from tests.fleet.test_dataset import row, write

PAGE = (Path(__file__).parents[2] / "docs" / "fleet.md").read_text(encoding="utf-8")
(READING,) = re.findall(r"^```python\n(duckdb.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_page_names_every_table_and_column(tmp_path):
    write(tmp_path, [row("a")])
    for table in TABLES:
        (told,) = re.findall(rf"^\| `{table}` \|.*\|(.*)\|$", PAGE, re.MULTILINE)
        names = re.findall(r"`(\w+)`", told)
        assert names == pq.read_schema(next((tmp_path / table).iterdir())).names


@pytest.mark.parametrize(("library", "rows"), [("duckdb", 1), ("polars", 1), ("spark", 2)])
def test_others_read_it_as_the_page_says(tmp_path, monkeypatch, library, rows):
    monkeypatch.chdir(tmp_path)
    write(Path("ckaudit-fleet"), [row("a"), row("b")])
    line = next(line for line in READING.splitlines() if line.startswith(library))
    if library == "spark":  # no Java here: any reader of a folder of Parquet takes it as Spark does
        assert pq.read_table(re.search(r'"(.*?)"', line)[1]).num_rows == 2 * rows
        return
    found = eval(line, {library: pytest.importorskip(library)})
    assert len(found) == rows
