"""Lines of two numbers and nothing beside them, as `print(step, loss.item())` writes them: a count that rises, and a loss."""

import re
from collections.abc import Iterator, Mapping

import numpy as np

from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.text.line_reader import step_lines
from ckaudit.importers.text.line_values import read_named_lines
from ckaudit.importers.text.log import is_text
from ckaudit.importers.text.prefix import MAX_LINE, numbered_lines

NAME = "lines of two numbers"
GENERIC = True
ONLY_BY_NAME = True  # pairs of numbers may be anything
MIN_LINES = 5
"""Lines that make a log: fewer may be a table of results."""

MAX_OTHER_SHARE = 0.2
"""Share of the lines that may be others, as of a program that also says what it loads and saves."""

HEAD_BYTES = 2**16
_LINE = re.compile(
    r"\s{0,8}(\d{1,12})[\s,:;|]{1,8}(?:tensor\()?(-?(?:nan|inf|(?:\d{1,15}\.\d{0,20}|\d{1,15}(?=[eE]))(?:[eE][-+]?\d{1,3})?))\)?\s{0,8}"
)


def detects(source: Source) -> bool:
    """Tell by nearly all of the first lines, and a count in them that only rises."""
    if not is_text(source):
        return False
    head = source.data[:HEAD_BYTES]
    counts = [count for _, count, _ in _lines(head)]
    lines = sum(1 for line in head.splitlines() if line.strip())
    return len(counts) >= max(MIN_LINES, (1 - MAX_OTHER_SHARE) * lines) and bool((np.diff(counts) > 0).all())


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the lines.

    Raises:
        UnreadableError: Where no line has a value.
        UsageError: Where `columns` names what no line holds.
    """
    note = "no line names what it holds: the first number was taken for the step, the second for the training loss"
    return read_named_lines(source, columns, NAME, step_lines(_lines(source.data)), notes=[note])


def _lines(data: bytes) -> Iterator[tuple[int, int, dict[str, float]]]:
    for number, line in numbered_lines(data):
        if len(line) <= MAX_LINE and (match := _LINE.fullmatch(line)):
            yield number, int(match[1]), {"loss": float(match[2])}
