"""rsl_rl's console in trainings of Isaac Lab and legged robots: a block per iteration, with a name and a value per line.

              Learning iteration 12/1500
                Computation: 96968 steps/s (collection: 0.512s, learning 0.141s)
         Mean surrogate loss: -0.0028
                 Mean reward: 4.21
              Iteration time: 0.65s
Iterations count from 0, so iteration N is step N + 1; where they restart, another run begins. The blocks are read as a CSV file
with one row per block.
"""

import re
from collections.abc import Mapping

from ckaudit.importers.formats.csvfile import imported_records
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.tables.long_form import numbered_starts
from ckaudit.importers.text.console_blocks import ConsoleBlocks

NAME = "rsl_rl console"
GENERIC = False
_BEGIN = re.compile(r"\s*Learning iteration (\d{1,9})/\d{1,9}\s*")
_ROW = re.compile(r" {0,80}([A-Za-z][\w /.-]{0,80}): ([-+]?(?:nan|inf|\d{1,20}(?:\.\d{0,20})?(?:e[-+]?\d{1,3})?))(s?)(?![\w.:])")
_OWN = {"Iteration time": "step_time"}
_FROM_ZERO = "iterations count from 0: N was taken as step N + 1"
_BLOCKS = ConsoleBlocks(
    mark=b"Learning iteration ",
    begin=_BEGIN.fullmatch,
    step=lambda begun: int(begun[1]) + 1,
    row=_ROW.match,
    cell=lambda row: (_OWN.get(row[1], row[1]), row[2]),
)


def detects(source: Source) -> bool:
    """Tell whether the text has the first lines of several blocks that hold numbers."""
    return _BLOCKS.are_in(source)


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the blocks.

    Raises:
        UnreadableError: Where no name can be recognised, or none has a value.
        UsageError: Where `columns` names something that does not exist.
    """
    records = _BLOCKS.records(source.data)
    started = numbered_starts([int(record["step"]) for record in records])
    records = [{"run": str(run), **record} for run, record in zip(started, records, strict=True)] if started[-1] > 1 else records
    return imported_records(records, source, columns, NAME, [_FROM_ZERO])
