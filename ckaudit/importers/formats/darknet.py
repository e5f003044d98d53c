"""Darknet's training lines, `12: 1.84, 1.91 avg loss, 0.001 rate, 2.1 seconds, 768 images`, as YOLO's first versions print."""

import re
from collections.abc import Iterator, Mapping

from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.text.line_reader import step_lines
from ckaudit.importers.text.log import is_text
from ckaudit.importers.text.named_lines import read_named_lines
from ckaudit.importers.text.prefix import MAX_LINE, numbered_lines

NAME = "Darknet's training lines"
GENERIC = False
HEAD_BYTES = 2**21
_NUMBER = r"-?(?:nan|inf|\d{1,20}(?:\.\d{1,20})?)"
_LINE = re.compile(
    rf"\s{{0,8}}(\d{{1,12}}): ({_NUMBER}), {_NUMBER} avg(?: loss)?, ({_NUMBER}) rate, ({_NUMBER}) seconds, \d{{1,15}} images"
)
_KEYS = ("loss", "lr", "seconds per step")


def detects(source: Source) -> bool:
    """Tell whether the text has such a line."""
    return is_text(source) and b" avg" in source.data[:HEAD_BYTES] and next(_lines(source.data[:HEAD_BYTES]), None) is not None


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the lines; the average after each loss is left out.

    Raises:
        UnreadableError: Where no line has a value.
        UsageError: Where `columns` names a key that no line holds.
    """
    note = "the average of the loss was left out: a spike hardly shows in it"
    return read_named_lines(source, columns, NAME, step_lines(_lines(source.data)), notes=[note])


def _lines(data: bytes) -> Iterator[tuple[int, int, dict[str, float]]]:
    for number, line in numbered_lines(data):
        if len(line) <= MAX_LINE and (match := _LINE.match(line)):
            values = dict(zip(_KEYS, map(float, match.groups()[1:]), strict=True))
            if not values["lr"]:  # in the first steps the rate is smaller than the six decimals that are printed
                del values["lr"]
            yield number, int(match[1]), values
