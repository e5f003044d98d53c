"""Columns that the user named by `--map`: one that no record has is a slip of the pen, not missing data."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from ckaudit.errors import UsageError
from ckaudit.material.columns import has_column
from ckaudit.material.files import SampleFile

LOOKED_AT, SHOWN = 100, 12


class Named:
    """The columns that the user named, each until a record of any of the samples has it."""

    def __init__(self, chosen: Mapping[str, str] | None = None) -> None:
        self._absent = dict(chosen or {})
        self._seen = 0
        self._others: dict[str, None] = {}

    def look(self, record: Mapping[str, Any]) -> None:
        """Take one record; null is a value too."""
        if not self._absent:
            return
        self._absent = {meaning: column for meaning, column in self._absent.items() if not has_column(record, column)}
        self._seen += 1
        if self._seen <= LOOKED_AT:
            self._others |= dict.fromkeys(record)

    def check(self, files: Sequence[SampleFile]) -> None:
        """Say which column none of the records had; where none could be read there is nothing to say.

        Args:
            files: All files that were read.

        Raises:
            UsageError: With the columns that are there.
        """
        for meaning, column in self._absent.items():
            if self._seen:
                raise UsageError(f"--map {meaning}={column}: no record has a column {column!r}", hint=self._hint(column, files))
            if all(file.form == "text" for file in files):
                raise UsageError(f"--map {meaning}={column}: text files have no columns", hint="leave --map out")

    def _hint(self, column: str, files: Sequence[SampleFile]) -> str:
        there = list(dict.fromkeys([*self._others, *_of_parquet(files)]))
        if near := get_close_matches(column, there, n=1):
            return f"did you mean {near[0]}?"
        rest = f" and {len(there) - SHOWN:,} more" if len(there) > SHOWN else ""
        return f"the columns are {', '.join(there[:SHOWN])}{rest}" if there else "the records are empty"


def _of_parquet(files: Iterable[SampleFile]) -> list[str]:
    """Return the columns of the first Parquet file, of which only those that are wanted were read."""
    from ckaudit.material.parquet import column_names

    first = next((file for file in files if file.form == "parquet"), None)
    return column_names(first) if first else []
