"""The table printed by spaCy's training: losses summed since the previous row, and scores on the development set.

    E    #       LOSS TOK2VEC  LOSS NER  ENTS_F  ENTS_P  ENTS_R  SCORE
    ---  ------  ------------  --------  ------  ------  ------  ------
      0       0          0.00     39.74    0.00    0.00    0.00    0.00
      0     200        229.30   1917.43   19.02   19.02   19.02    0.19

`#` counts updates from 0, so # N is step N + 1. Losses are sums over the updates since the previous row, and the loss of
an update is their mean. TOK2VEC and TRANSFORMER only pass gradients on, and are not losses; the losses of several components
are summed. Where the count restarts, another run begins.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from ckaudit.importers.formats.csvfile import imported_records
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import list_names
from ckaudit.importers.tables.long_form import numbered_starts
from ckaudit.importers.tables.numbers import count_of, number
from ckaudit.importers.text.log import is_text
from ckaudit.importers.text.prefix import MAX_LINE, numbered_lines

NAME = "spaCy table"
GENERIC = False
HEAD_BYTES = 2**20
MIN_ROWS = 2
_BEGINS = re.compile(rb"(?<!\S)E {1,8}# {1,20}(?:LOSS|SCORE)")
_BETWEEN = re.compile(r" {2,}")
_LOSS = "LOSS "
_SCORE = "SCORE"
_PASSED_ON = frozenset({"LOSS TOK2VEC", "LOSS TRANSFORMER"})
Row = dict[str, float]


def detects(source: Source) -> bool:
    """Tell whether the text has the line of names and rows below it."""
    return is_text(source) and _BEGINS.search(source.data[:HEAD_BYTES]) is not None and len(list(_rows(source.data))) >= MIN_ROWS


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the table.

    Raises:
        UnreadableError: Where no column holds a value.
        UsageError: Where `columns` names something that does not exist.
    """
    rows = list(_rows(source.data))
    names = list(dict.fromkeys(name for row in rows for name in row))
    losses = [name for name in names if name.startswith(_LOSS) and name not in _PASSED_ON]
    started = numbered_starts([int(row["#"]) for row in rows])
    updates = [int(rows[0]["#"]) + 1, *(_since(before["#"], after["#"]) for before, after in pairwise(rows))]
    means = [_mean(row, losses, since) for row, since in zip(rows, updates, strict=True)]
    others = [name for name in names[2:] if name not in (*losses, _SCORE)]
    records = [
        ({"run": str(run)} if started[-1] > 1 else {})
        | {"step": str(int(row["#"]) + 1), "train_loss_raw": mean, f"microbench_score/{_SCORE.lower()}": str(row.get(_SCORE, ""))}
        | {name: str(row.get(name, "")) for name in others}
        for run, row, mean in zip(started, rows, means, strict=True)
    ]
    return imported_records(records, source, columns, NAME, _notes(losses))


def _since(before: float, after: float) -> int:
    """Return the updates between two rows; for the first row after a restart, all updates up to it."""
    return int(after - before) if after > before else int(after) + 1


def _mean(row: Row, losses: Sequence[str], updates: int) -> str:
    values = [row[name] for name in losses if name in row]
    return str(sum(values) / updates) if values and updates > 0 else ""


def _notes(losses: Sequence[str]) -> list[str]:
    what = f"the sum of {list_names(losses)}" if len(losses) > 1 else list_names(losses)
    taken = [f"train_loss_raw is the mean of {what} over the updates since the row before"] if losses else []
    return ["# counts updates from 0: # N was taken as step N + 1", *taken]


def _rows(data: bytes) -> Iterator[Row]:
    """Yield the numbers of each row below the line of names, by name."""
    names: list[str] = []
    for _, line in numbered_lines(data):
        if len(line) > MAX_LINE:
            continue
        if _BEGINS.search(line[:200].encode()):
            names = _BETWEEN.split(line.strip())
            continue
        cells = line.split() if names else []
        if len(cells) == len(names) > 2 and names[1] == "#" and (updates := count_of(cells[1])) is not None:
            values = {name: number(cell) for name, cell in zip(names, cells, strict=True)}
            yield {name: value for name, value in values.items() if value is not None} | {"#": float(updates)}
