"""The options that several probes share, and the reading of their material."""

from typing import TYPE_CHECKING, Annotated

import typer

from ckaudit.cli.measured import paths
from ckaudit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckaudit.material.columns import Columns
    from ckaudit.material.records import Reading

EXIT_CODES = """\
\b
Exit codes:
  0  measured
  1  findings at or above --fail-on: a file that cannot be read
  2  could not measure, or there was nothing to measure
"""

Generations = Annotated[
    list[str], typer.Argument(metavar="GENERATIONS", help="JSON lines or Parquet, or folders of them.", show_default=False)
]


def reading_of(files: list[str], usual: "Columns", chosen: "Mapping[str, str]") -> "Reading":
    """Return how generations are read."""
    from ckaudit.material.files import sample_files
    from ckaudit.material.records import Named, Reading

    return Reading(sample_files(paths(files)), usual.mapped(chosen), named=Named(chosen))


def count(word: str, name: str) -> int | None:
    """Return the number that an option's word means, None where it was not given, or raise `UsageError`."""
    if word and not (word.isascii() and word.isdecimal() and int(word)):
        raise UsageError(f"{name} {word!r} is not a number of at least 1", hint=f"write it as digits, such as {name} 25")
    return int(word) if word else None
