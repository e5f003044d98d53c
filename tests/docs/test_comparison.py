"""The numbers of the comparison are those of the benchmark."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAGE, MEASURED = ((DOCS / name).read_text(encoding="utf-8") for name in ("comparison.md", "benchmark.md"))


def rows(text):
    return [line for line in text.splitlines() if re.match(r"\| .* % \[", line)]


def test_every_row_of_shares_stands_in_the_benchmark():
    assert len(rows(PAGE)) == 10
    bare = MEASURED[MEASURED.index("## The log alone: test split") :]
    loop = MEASURED[MEASURED.index("### Tools on the same runs") :]
    assert set(rows(PAGE)[:5]) <= set(rows(bare))
    assert set(rows(PAGE)[5:]) <= set(rows(loop))


def test_what_speaks_against_us_is_as_it_was_measured():
    test_split = MEASURED[MEASURED.index("## Test split") : MEASURED.index("## The log alone")]
    assert "| healthy runs with sev2 | 9 of 100" in test_split
    assert "nine of a hundred healthy runs get a sev2" in PAGE
    every = next(line for line in test_split.splitlines() if line.startswith("| all |"))
    assert re.search(r"(\d+) of 100 ill ones", PAGE)[1] == re.fullmatch(r"(\d+) % .*", every.split(" | ")[7])[1]
    alarms = re.findall(r"(\d+) of 214: ", next(row for row in rows(PAGE) if row.startswith("| any alarm")))
    assert int(alarms[0]) < int(alarms[1])
