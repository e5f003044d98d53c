"""Tables of log lines: a block without any violation is proved so on arrays, several times as fast as line by line."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from ckaudit.contract.io.files import PACKED
from ckaudit.contract.io.jsonl import Row
from ckaudit.contract.schema.numbers import encode_float

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckaudit.contract.io.fast_jsonl import LineTable, Tabulator

MANY_BYTES = 4 * 2**20  # loading numpy takes the time of 20,000 lines
PACKED_RATIO = 10
NO_VALUE = frozenset({"schema_version", "step", "time", "session"})


class LastLine(Struct):
    """What the next line of a log is compared with.

    Attributes:
        session: Session of the last line; -1: there was none.
        step: Its step.
        time: The latest time of its session.
        row: The values of its step, of all lines of that step.
    """

    session: int = -1
    step: int = -1
    time: float = float("-inf")
    row: Row = field(default_factory=dict)


def tabulator_for(path: Path) -> "Tabulator | None":
    """Return a reader of tables for a log that is worth it; None for a small one."""
    try:
        size = path.stat().st_size * (PACKED_RATIO if path.suffix in PACKED else 1)
    except OSError:
        return None
    if size < MANY_BYTES:
        return None
    from ckaudit.contract.io.fast_jsonl import Tabulator  # imported late: small logs are read without numpy

    return Tabulator()


def is_orderly(table: "LineTable", last: LastLine) -> bool:
    """Tell whether lines continue one session, never go back in step or time, and agree wherever they repeat a step."""
    steps, session = table.steps, int(table.sessions[0])
    if last.session not in (-1, session) or (table.sessions != session).any():
        return False
    if steps[0] < last.step or (steps[1:] < steps[:-1]).any():
        return False
    times = next((values for name, _, values in _recorded(table) if name == "time"), None)
    # a time that is NaN is neither earlier nor later, so such a block is not proved
    if times is not None and not (times[0] >= last.time and (times[1:] >= times[:-1]).all()):
        return False
    repeats = steps[0] == last.step or bool((steps[1:] == steps[:-1]).any())
    return not repeats or (not table.texts and all(_agrees(*column, last) for column in _recorded(table)))


def _agrees(name: str, steps: "NDArray[Any]", values: "NDArray[Any]", last: LastLine) -> bool:
    """Tell whether a column has no two different values at one step."""
    if name in NO_VALUE:
        return True
    differ = (values[1:] != values[:-1]) & ~((values[1:] != values[1:]) & (values[:-1] != values[:-1]))
    if (differ & (steps[1:] == steps[:-1])).any():
        return False
    older = last.row.get(name)
    return steps[0] != last.step or older is None or older == encode_float(float(values[0]))


def last_line(table: "LineTable", last: LastLine) -> LastLine:
    """Return what the line after an orderly table is compared with."""
    step, time = int(table.steps[-1]), last.time
    row: Row = dict(last.row) if step == last.step else {}
    for name, steps, values in _recorded(table):
        if name == "time":
            time = float(values[-1])
        if steps[-1] == step:
            row[name] = encode_float(float(values[-1]))
    return LastLine(int(table.sessions[0]), step, time, row)


def recorded_names(table: "LineTable") -> set[str]:
    """Return the names that have a value."""
    words = {name for name, texts in table.texts.items() if any(text is not None for text in texts)}
    return words | {name for name, _, _ in _recorded(table)}


def _recorded(table: "LineTable") -> Iterator[tuple[str, "NDArray[Any]", "NDArray[Any]"]]:
    """Yield each number with a value: its name, the steps at which it has one, and the values."""
    for index, name in enumerate(table.names):
        known = None if table.recorded is None else table.recorded[index]
        if known is None:
            yield name, table.steps, table.values[index]
        elif known.any():
            yield name, table.steps[known], table.values[index][known]


def values_at(table: "LineTable", wanted: frozenset[int], names: tuple[str, ...]) -> Iterator[tuple[int, int, str, Any]]:
    """Yield the row, step, name and value of some names at the wanted steps."""
    import numpy as np

    rows = np.flatnonzero(np.isin(table.steps, np.fromiter(wanted, np.int64, len(wanted)))) if wanted else ()
    for name in names if len(rows) else ():
        if name in table.names:
            index = table.names.index(name)
            for row in rows:
                if table.recorded is None or table.recorded[index, row]:
                    yield int(row), int(table.steps[row]), name, encode_float(float(table.values[index, row]))


def is_within(table: "LineTable", ranges: dict[int, list[tuple[int, int]]]) -> bool:
    """Tell whether any line is in one of the ranges of steps of its session."""
    return any(
        ((table.sessions == session) & (table.steps >= first) & (table.steps <= last)).any()
        for session, spans in ranges.items()
        for first, last in spans
    )
