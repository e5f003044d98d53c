"""Darknet's lines of training, `12: 1.84, 1.91 avg loss, 0.001 rate, 2.1 seconds, 768 images`, as YOLO's first versions print."""

import re
from collections.abc import Iterator, Mapping, Sequence

from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.text.error_lines import error_lines
from ckaudit.importers.text.line_reader import LogContent, RunFact, StepLines, step_lines
from ckaudit.importers.text.line_values import is_wanted, named_lines
from ckaudit.importers.text.log import Format, NamedLines, is_text, no_run_facts, parsed_dialect, read_scanned
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
    """Tell by a line of its kind."""
    return is_text(source) and b" avg" in source.data[:HEAD_BYTES] and next(_lines(source.data[:HEAD_BYTES]), None) is not None


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the lines; the average behind each loss is left out.

    Raises:
        UnreadableError: Where no line has a value.
        UsageError: Where `columns` names what no line holds.
    """
    log = LogContent(step_lines(_lines(source.data)), [], error_lines(source.data), source.line_count, [], [])

    def meaning(rows: StepLines, mapped: Mapping[str, str], _: Sequence[RunFact]) -> NamedLines:
        return named_lines(rows, mapped, ["the average of the loss was left out: a spike hardly shows in it"])

    return read_scanned(log, source, columns, Format(parsed_dialect(NAME, is_wanted), meaning, no_run_facts))


def _lines(data: bytes) -> Iterator[tuple[int, int, dict[str, float]]]:
    for number, line in numbered_lines(data):
        if len(line) <= MAX_LINE and (match := _LINE.match(line)):
            yield number, int(match[1]), dict(zip(_KEYS, map(float, match.groups()[1:]), strict=True))
