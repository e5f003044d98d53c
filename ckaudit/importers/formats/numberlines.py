"""Lines of exactly two numbers, as `print(step, loss.item())` writes them: a rising count, and a loss.

The file name may say that the second number is a held-out loss or another metric.
"""

import re
from collections.abc import Iterator, Mapping

import numpy as np

from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import catalogue_name, is_named_like_a_score
from ckaudit.importers.tables.loss_file_names import is_of_rewards, loss_named_by_file, words_in_file_name
from ckaudit.importers.text.line_reader import step_lines
from ckaudit.importers.text.log import is_text
from ckaudit.importers.text.named_lines import read_named_lines
from ckaudit.importers.text.prefix import MAX_LINE, numbered_lines

NAME = "lines of two numbers"
GENERIC = True
ONLY_BY_NAME = True  # pairs of numbers may be anything
MIN_LINES = 5
"""Minimum number of lines in a log; fewer may be a table of results."""

MAX_OTHER_SHARE = 0.2
"""Maximum share of other lines, such as messages on what a program loads and saves."""

HEAD_BYTES = 2**16
_STEP_AND_VALUE = re.compile(
    r"\s{0,8}(\d{1,12})[\s,:;|_]{1,8}(?:tensor\()?(-?(?:nan|inf|(?:\d{1,15}\.\d{0,20}|\d{1,15}(?=[eE]))(?:[eE][-+]?\d{1,3})?))\)?\s{0,8}"
)


def detects(source: Source) -> bool:
    """Tell whether nearly all of the first lines have this form, and their counts always rise."""
    if not is_text(source) or is_named_like_a_score(source.path.name) or is_of_rewards(source.path.name):
        return False
    head = source.data[:HEAD_BYTES]
    counts = [count for _, count, _ in _pairs(head, "loss")]
    lines = sum(1 for line in head.splitlines() if line.strip())
    return len(counts) >= max(MIN_LINES, (1 - MAX_OTHER_SHARE) * lines) and bool((np.diff(counts) > 0).all())


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the lines.

    Raises:
        UnreadableError: Where no line has a value.
        UsageError: Where `columns` names a key that no line holds.
    """
    name, in_words = _name_of_values(source.path.name)
    note = f"no line names what it holds: the first number was taken for the step, the second for {in_words}"
    return read_named_lines(source, columns, NAME, step_lines(_pairs(source.data, name)), notes=[note])


def _name_of_values(file_name: str) -> tuple[str, str]:
    """Return the name of the second numbers, from the file name if it gives one, and what they are in words."""
    stem = "_".join(words_in_file_name(file_name))
    loss = loss_named_by_file(file_name)
    if loss is not None and loss.catalogue_name == "val_loss":
        return "val_loss", "the validation loss, as the file's name says"
    if loss is None and catalogue_name(stem) not in (None, "step", "time"):
        return stem, f"{stem}, as the file's name says"
    return "loss", "the training loss"


def _pairs(data: bytes, name: str) -> Iterator[tuple[int, int, dict[str, float]]]:
    """Yield the line number, the step and the value by its name for each line with a pair."""
    for line_number, line in numbered_lines(data):
        if len(line) <= MAX_LINE and (match := _STEP_AND_VALUE.fullmatch(line)):
            yield line_number, int(match[1]), {name: float(match[2])}
