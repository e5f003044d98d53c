"""The console of MosaicML's Composer, as LLM Foundry prints it: a block per batch, with a name and a value per line.

    [batch=20/4800]:
         Train loss/train/total: 9.8113
         Train throughput/tokens_per_sec: 6598.0451
         Eval metrics/eval/LanguageCrossEntropy: 9.7240
In `[epoch=2/5][batch=16/625]` the batch count restarts in each epoch. Values have four decimals, so that a usual learning rate is
printed as zero: it is left out. The blocks are read as a CSV file with one row per block.
"""

import re
from collections.abc import Mapping

from ckaudit.importers.formats.csvfile import imported_records
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.text.console_blocks import ConsoleBlocks

NAME = "Composer console"
GENERIC = False
_BEGIN = re.compile(r"(?:\d{1,6}:)?\s{0,20}\[(?:epoch=(\d{1,9})(?:/\d{1,9})?\]\[)?batch=(\d{1,12})/(\d{1,12})\]:\s*")
_NUMBER = r"[-+]?(?:nan|inf|\d{1,20}(?:\.\d{0,20})?(?:e[-+]?\d{1,3})?)"
_ROW = re.compile(rf"(?:\d{{1,6}}:)?\s{{1,20}}(Train |Eval )([A-Za-z][\w/.-]{{0,120}}): ({_NUMBER})\s*")
_ROUNDED = "lr-"
_NOTE = "the learning rate is printed in four decimals: it was left out"


def _step(begun: "re.Match[str]") -> int:
    epochs = int(begun[1] or 1) - 1
    return epochs * int(begun[3]) + int(begun[2])


def _cell(row: "re.Match[str]") -> tuple[str, str]:
    """Return name and text of a value; a name from an evaluation gets the prefix `eval_` unless it contains "eval"."""
    of_training = row[1] == "Train " or "eval" in row[2]
    return row[2] if of_training else f"eval_{row[2]}", row[3]


_BLOCKS = ConsoleBlocks(b"batch=", _BEGIN.fullmatch, _step, _ROW.fullmatch, _cell)


def detects(source: Source) -> bool:
    """Tell whether the text has the heads of several blocks that hold numbers."""
    return _BLOCKS.are_in(source)


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the blocks.

    Raises:
        UnreadableError: Where no name can be recognised, or none has a value.
        UsageError: Where `columns` names something that does not exist.
    """
    records = _BLOCKS.records(source.data)
    rounded = {name for record in records for name in record if name.startswith(_ROUNDED)} - {*columns.values()}
    kept = [{name: text for name, text in record.items() if name not in rounded} for record in records]
    return imported_records(kept, source, columns, NAME, [_NOTE] if rounded else [])
