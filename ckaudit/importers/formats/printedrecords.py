"""Records printed in a box, with a name and a value per line, by Stable-Baselines3 and OpenAI's baselines.

    -----------------------------------
    | rollout/           |            |
    |    ep_rew_mean     | 21.3       |
    | time/              |            |
    |    total_timesteps | 2048       |
    | train/             |            |
    |    loss            | 0.0345     |
    -----------------------------------

A name without a value is the group of the names below it. A line of dashes ends a record; boxes without a number are ignored. The
records are read as a CSV file with one row per record.
"""

import re
from collections.abc import Iterator, Mapping

from ckaudit.importers.formats.csvfile import imported_records
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import catalogue_name
from ckaudit.importers.tables.numbers import number
from ckaudit.importers.tables.step_counters import ENVIRONMENT_STEPS
from ckaudit.importers.text.log import is_text
from ckaudit.importers.text.prefix import MAX_LINE, numbered_lines

NAME = "printed records"
GENERIC = True
HEAD_BYTES = 2**18
MIN_RECORDS = 2
_ROW = re.compile(r"\|( {1,8})([A-Za-z_][\w/ .%-]{0,60}?) *+\| *+([^|]{0,40}?) *+\|")
_STEP = (*ENVIRONMENT_STEPS, "n_updates", "iterations", "steps")
Record = dict[str, str]


def detects(source: Source) -> bool:
    """Tell whether the text has several records, the first with a step or a known name."""
    if not is_text(source) or b"|" not in source.data[:HEAD_BYTES]:
        return False
    records = list(_records(source.data[:HEAD_BYTES]))
    return len(records) >= MIN_RECORDS and any(_is_known(name) for name in records[0])


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the records.

    Raises:
        UnreadableError: Where no name can be recognised, or none has a value.
        UsageError: Where `columns` names something that does not exist.
    """
    records = list(_records(source.data))
    names = list(dict.fromkeys(name for record in records for name in record))
    step = next((name for word in _STEP for name in names if name.rpartition("/")[2] == word), None)
    renamed = [{"step" if name == step else name: text for name, text in record.items()} for record in records]
    return imported_records(renamed, source, columns, NAME)


def _records(data: bytes) -> Iterator[Record]:
    """Yield each record's values by name, prefixed by its group."""
    record, group = Record(), ""
    for _, line in numbered_lines(data):
        row = _ROW.fullmatch(line.strip()) if len(line) <= MAX_LINE else None
        if row is None:
            if record:
                yield record
            record, group = Record(), ""
        elif number(row[3]) is not None:
            record[group + row[2] if len(row[1]) > 1 else row[2]] = row[3]
        elif not row[3]:
            group = f"{row[2].rstrip('/')}/"
    if record:
        yield record


def _is_known(name: str) -> bool:
    return catalogue_name(name) is not None or name.rpartition("/")[2] in _STEP
