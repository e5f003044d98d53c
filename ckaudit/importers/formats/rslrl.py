"""rsl_rl's console, as Isaac Lab and legged robots' trainings show it: a block for each iteration, a name and a value to a line.

              Learning iteration 12/1500
                Computation: 96968 steps/s (collection: 0.512s, learning 0.141s)
         Mean surrogate loss: -0.0028
                 Mean reward: 4.21
              Iteration time: 0.65s

Iterations count from 0, so iteration N is step N + 1; where they begin anew, another run does. What all blocks say is
read as a CSV file, a row for each.
"""

import re
from collections.abc import Iterator, Mapping

from ckaudit.importers.formats.csvfile import imported_records
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.tables.long_form import numbered_starts
from ckaudit.importers.text.log import is_text
from ckaudit.importers.text.prefix import MAX_LINE, numbered_lines

NAME = "rsl_rl console"
GENERIC = False
HEAD_BYTES = 2**18
MIN_BLOCKS = 2
_MARK = b"Learning iteration "
_BEGIN = re.compile(r"\s*Learning iteration (\d{1,9})/\d{1,9}\s*")
_ROW = re.compile(r" {0,80}([A-Za-z][\w /.-]{0,80}): ([-+]?(?:nan|inf|\d{1,20}(?:\.\d{0,20})?(?:e[-+]?\d{1,3})?))(s?)(?![\w.:])")
_OWN = {"Iteration time": "step_time"}
_FROM_ZERO = "iterations count from 0: N was taken as step N + 1"
Record = dict[str, str]


def detects(source: Source) -> bool:
    """Tell by the first lines of several blocks that hold numbers."""
    head = source.data[:HEAD_BYTES]
    return _MARK in head and is_text(source) and sum(len(record) > 1 for record in _records(head)) >= MIN_BLOCKS


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the blocks.

    Raises:
        UnreadableError: Where no name can be recognised, or none has a value.
        UsageError: Where `columns` names what is not there.
    """
    records = [record for record in _records(source.data) if len(record) > 1]
    started = numbered_starts([int(record["step"]) for record in records])
    records = [{"run": str(run), **record} for run, record in zip(started, records, strict=True)] if started[-1] > 1 else records
    return imported_records(records, source, columns, NAME, [_FROM_ZERO])


def _records(data: bytes) -> Iterator[Record]:
    """Yield each block's values by name, its step first."""
    record: Record = {}
    for _, line in numbered_lines(data):
        if len(line) > MAX_LINE:
            continue
        if begun := _BEGIN.fullmatch(line):
            if record:
                yield record
            record = {"step": str(int(begun[1]) + 1)}
        elif record and (row := _ROW.match(line)):
            record.setdefault(_OWN.get(row[1], row[1]), row[2])
    if record:
        yield record
