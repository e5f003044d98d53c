"""The document of the importers names each of them."""

from pathlib import Path

from ckaudit.importers import format_key, importers

DOCUMENT = Path(__file__).parents[2] / "docs" / "importers.md"


def test_every_format_has_a_row_and_every_row_a_format():
    rows = [line.split("|")[1] for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    named = [word.strip(" `") for row in rows for word in row.split(",")]
    assert sorted(named) == sorted(["--format", *map(format_key, importers())])
