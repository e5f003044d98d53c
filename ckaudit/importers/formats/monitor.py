"""`monitor.csv`: episodes logged by Gym's Monitor, an environment wrapper in OpenAI's baselines and Stable-Baselines.

    #{"t_start": 1758883056.8, "env_id": "BipedalWalker-v3"}
    r,l,t
    -106.05,82,0.48

A row is an episode: its return, its length in steps, and the seconds since the start. Its step is the environment step at its
end, the sum of all lengths so far. A table with such columns but without the first line is another format.
"""

from collections.abc import Mapping

import msgspec
import numpy as np
from msgspec.structs import replace

from ckaudit.importers.formats.csvfile import choices_of, imported_runs, labelled_table
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import RETURN
from ckaudit.importers.tables.numbers import NO_STEP, Numbers, steps_from
from ckaudit.importers.tables.table import NumberTable
from ckaudit.importers.tables.table_header import sniff_table

NAME = "Gym Monitor"
GENERIC = False
_OWN = {"step": "l", RETURN: "r"}
_NOTE = "a row is an episode: its step is the sum of l so far, the steps of the environment at its end"


def detects(source: Source) -> bool:
    """Tell whether the file has the comment with the start time, and the names of the columns below it."""
    if not source.head.startswith((b"#{", b"# {")):
        return False
    try:
        facts = msgspec.json.decode(source.head.partition(b"\n")[0].lstrip(b"# "))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    table = sniff_table(source.head)
    return isinstance(facts, dict) and "t_start" in facts and table is not None and table[1][:3] == ["r", "l", "t"]


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the return of each episode, at environment steps.

    Raises:
        UnreadableError: Where no episode has ended yet.
        UsageError: Where `columns` names something that does not exist.
    """
    own = {name: column for name, column in _OWN.items() if name not in columns and column not in columns.values()}
    table, labels = labelled_table(source, {**own, **columns})
    source.forget()
    if "step" in own:
        table = _with_steps(table, table.header.index(own["step"]))
    choices = choices_of(table.header, {**own, **columns}, source.shown)
    return imported_runs(table, labels, choices, source.shown, NAME)


def _with_steps(table: NumberTable, place: int) -> NumberTable:
    """Return a table with the running sum of episode lengths; an episode whose length is not an integer has no step."""
    lengths = steps_from(table.columns[place])
    known = lengths != NO_STEP
    ends = Numbers(np.cumsum(np.where(known, lengths, 0), dtype=np.float64), known)
    return replace(table, columns={**table.columns, place: ends}, notes=[*table.notes, _NOTE])
