"""JSON lines, or one JSON list, of whatever program: an object per entry, members under common names, nested or not.

A member that is null or missing was not recorded; NaN, bare or as a word, was recorded as NaN, unless it stands between the
numbers of its series so often that it can only mean *nothing here*. A member of a member goes by both names joined by a
slash, or by a dot where the user writes it so. Weights & Biases' history is one of these: `_step` counts its calls of log,
so that a member which counts updates goes before it; `_timestamp` is Unix time.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ckaudit.errors import UnreadableError
from ckaudit.importers.csvfile import steps_of_epochs
from ckaudit.importers.curves import Curves, drop_other_clock, joined, steps_of
from ckaudit.importers.imported import Imported
from ckaudit.importers.jsonrows import Object, Rows, read_rows, sample
from ckaudit.importers.members import SCALARS_ONLY, As, Names, Taken, is_wanted, name_of, taken
from ckaudit.importers.names import listed
from ckaudit.importers.numbers import Numbers
from ckaudit.importers.source import Source

NAME = "JSON lines"
GENERIC = True
EPOCH = "epoch"
ENDINGS = (".jsonl", ".ndjson")
CALLS = "_step"  # of Weights & Biases

_NAMES: Names = {EPOCH: As(""), "_runtime": As("")}


def detects(source: Source) -> bool:
    """Tell by the first lines: objects with a step and a series of a known name, or several with such a series."""
    rows = objects(source.head)
    if not rows:
        return False
    known = [{name for key in row if (name := name_of(key, _NAMES))} for row in rows]
    valued = sum(bool(names - {"step", "time"}) for names in known)
    named_so = source.path.name.removesuffix(".gz").removesuffix(".zst").lower().endswith(ENDINGS)
    return named_so or valued > 1 or any("step" in names and len(names) > 1 for names in known)


def objects(head: bytes) -> list[Object]:
    """Return the first objects of a file of lines, or of a list of objects."""
    start = head.lstrip()
    return sample(_as_lines(head)) if start.startswith(b"[") and start[1:].lstrip().startswith(b"{") else sample(head)


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the log.

    Raises:
        UnreadableError: Where no member has a known name, or none holds a value.
        UsageError: Where `columns` names what is not there.
    """
    data = source.data
    if data.lstrip().startswith(b"["):
        data = _as_lines(source.document)
    rows = read_rows(data, source.shown, is_wanted({**columns, EPOCH: EPOCH}, _NAMES))
    found = taken(rows, columns, _NAMES)
    if not set(found.series) - {"step", "time"}:
        raise UnreadableError(
            f"{source.shown} holds JSON entries, but none of their members has a name that is known: {listed(list(rows.keys))}",
            hint="Name them, as in --map loss=MEMBER --map step=MEMBER.",
        )
    return [_told(rows, found, columns, source.shown)]


def _told(rows: Rows, found: Taken, columns: Mapping[str, str], shown: str) -> Imported:
    series = dict(found.series)
    drop_other_clock(series)
    steps, said = _steps(rows, series, found, asked="step" in columns)
    curves = Curves(steps, {name: values for name, values in series.items() if name != "step"}, [*found.notes, *said])
    return joined(curves, shown, NAME, found=rows.found, notes=rows.notes, last=SCALARS_ONLY)


def _steps(rows: Rows, series: Mapping[str, Numbers], found: Taken, *, asked: bool) -> tuple[NDArray[np.int64], list[str]]:
    if "step" in series:
        key = found.keys["step"]
        if not asked and (better := _counter_of_updates(rows, series)):
            key = better
        steps, notes = steps_of(rows.column(key), rows.lines)
        if key == CALLS:
            notes.append(
                "_step counts calls of log, which may be more or fewer than updates; --map step=MEMBER decides otherwise"
            )
        elif key != found.keys["step"]:
            notes.append(f"steps are those of {key}")
        loss = series.get("train_loss_raw")
        if loss is not None and len(steps) and steps[0] == 0 and loss.recorded[0]:
            notes.append("its steps count from 0 and were kept: step N here may be update N + 1")
        return steps, notes
    if axis := steps_of_epochs(rows.column(EPOCH)):
        return axis
    note = "no member holds the step: entries were numbered from 1; name one with --map step=MEMBER"
    return np.arange(1, len(rows.lines) + 1), [note]


def _counter_of_updates(rows: Rows, series: Mapping[str, Numbers]) -> str:
    """Return the member that counts updates wherever a loss was logged, not calls; empty: none does, or there is no choice."""
    counters = [key for key in rows.columns if key != CALLS and name_of(key, _NAMES) == "step"]
    losses = [column.recorded for name, column in series.items() if name in ("train_loss_raw", "val_loss")]
    if not losses or CALLS not in rows.columns:
        return ""
    there = np.logical_or.reduce(losses)
    return next((key for key in counters if rows.columns[key].recorded[there].all()), "")


def _as_lines(data: bytes) -> bytes:
    """Return a list of objects as lines, as much of it as is whole."""
    import json

    decoder, text = json.JSONDecoder(), data.decode("utf-8-sig", errors="replace")
    place, lines = text.index("[") + 1, list[bytes]()
    while True:
        while place < len(text) and text[place] in " \t\r\n,":
            place += 1
        try:
            row, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            return b"\n".join(lines)
        lines.append(json.dumps(row).encode())
