"""JSON lines, or one JSON list, from any program: one object per entry, members with common names, nested or not.

A member that is null or missing is not recorded. NaN, bare or as a word, is recorded as NaN, unless it occurs between the
numbers of its series so often that it can only mean *no value*. The key of a nested member joins the names by slashes, or by dots
if the user writes it so. The history of Weights & Biases has this form: `_step` counts its log calls, so a member that counts
updates takes precedence; `_timestamp` is Unix time.
"""

from collections.abc import Mapping

import numpy as np
from msgspec import UNSET

from ckaudit.errors import UnreadableError
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import list_names, policy_losses
from ckaudit.importers.notes_on_names import hint_on_unknown_names
from ckaudit.importers.tables.curves import (
    CALLS,
    CARRIED,
    ONLY_CALLS,
    Curves,
    StepAxis,
    counted_from_zero,
    counter_of_updates,
    imported_run,
    steps_in_epochs,
    steps_of,
    steps_of_epochs,
    take_unix_time,
)
from ckaudit.importers.tables.field_map import SCALARS_ONLY, Mapped, MappedSeries, Names, is_wanted, map_members, name_of
from ckaudit.importers.tables.jsonrows import JsonRows, Object, read_rows, sample
from ckaudit.importers.tables.long_form import LABEL_COLUMNS, LabelColumn, runs_of, split_of, starts_of
from ckaudit.importers.tables.numbers import NO_STEP, Numbers, forward_fill, steps_from

NAME = "JSON lines"
GENERIC = True
EPOCH = "epoch"
ENDINGS = (".jsonl", ".ndjson")

_NAMES: Names = {EPOCH: Mapped(""), "_runtime": Mapped("")}


def detects(source: Source) -> bool:
    """Tell whether a first line has a step and a series with a known name, or several lines have such a series."""
    rows = objects(source.head)
    if not rows:
        return False
    known = [{name for key in row if (name := name_of(key, _NAMES))} for row in rows]
    valued = sum(bool(names - {"step", "time"}) for names in known)
    named_so = source.path.name.removesuffix(".gz").removesuffix(".zst").lower().endswith(ENDINGS)
    return named_so or valued > 1 or any("step" in names and len(names) > 1 for names in known)


def objects(head: bytes) -> list[Object]:
    """Return the first objects of a file of lines or of a list of objects."""
    start = head.lstrip()
    return sample(_as_lines(head)) if start.startswith(b"[") and start[1:].lstrip().startswith(b"{") else sample(head)


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the log.

    Raises:
        UnreadableError: Where no member has a known name, or none holds a value.
        UsageError: Where `columns` names something that does not exist.
    """
    data = source.data
    if data.lstrip().startswith(b"["):
        data = _as_lines(source.document)
    rows = read_rows(data, source.shown, is_wanted({**columns, EPOCH: EPOCH}, _NAMES), texts=LABEL_COLUMNS)
    labels = {name: LabelColumn.of(cells) for name, cells in rows.texts.items()}
    rows = rows.with_split_columns(split, labels[split]) if (split := split_of(labels)) else rows
    mapped = map_members(rows, columns, _NAMES, silent=labels)
    if not set(mapped.series) - {"step", "time"} and not mapped.layers and not policy_losses(rows.keys):
        members = list_names(list(rows.keys))
        raise UnreadableError(
            f"{source.shown} holds JSON entries, but none of their members has a name that is known: {members}",
            hint=hint_on_unknown_names(list(rows.keys), "MEMBER"),
        )
    steps = mapped.series.get("step") or rows.columns.get(EPOCH)
    places = steps_from(steps) if steps else None
    logged = {name: column for name, column in mapped.series.items() if name not in ("step", "time")}
    runs = runs_of(labels, places) or starts_of(places, rows.columns.get(EPOCH), logged)
    if not runs:
        return [_imported(rows, mapped, source.shown, asked="step" in columns)]
    parts = {name: rows.at(own) for name, own in runs.items()}
    return [
        _imported(part, map_members(part, columns, _NAMES, silent=labels), source.shown, asked="step" in columns, name=name)
        for name, part in parts.items()
    ]


def _imported(rows: JsonRows, mapped: MappedSeries, shown: str, *, asked: bool, name: str = "") -> Imported:
    """Return one run; `asked` is whether the user named the step."""
    series = dict(mapped.series)
    clock = take_unix_time(series)
    axis = _steps(rows, series, mapped, asked=asked)
    plain = {name: values for name, values in series.items() if name != "step"}
    curves = Curves(axis.steps, plain, [*mapped.notes, *axis.notes, *clock], mapped.layers, [*rows.keys], axis.unit)
    run = imported_run(curves, shown, NAME, size=rows.size_text, notes=rows.notes, last=SCALARS_ONLY, name=name)
    run.manifest.name = name or UNSET
    return run


def _steps(rows: JsonRows, series: Mapping[str, Numbers], mapped: MappedSeries, *, asked: bool) -> StepAxis:
    if "step" in series:
        counters = {key: column for key, column in rows.columns.items() if name_of(key, _NAMES) == "step"}
        better = "" if asked else counter_of_updates(counters, series)
        steps, notes = steps_of(counters[better] if better else series["step"], rows.lines)
        if better:
            steps, notes = forward_fill(steps, steps != NO_STEP), [CARRIED.format(better)]
        elif mapped.keys["step"] == CALLS:
            notes.append(ONLY_CALLS)
        steps, anew = steps_in_epochs(steps, rows.column(EPOCH))
        notes += anew
        return StepAxis(steps, [*notes, *counted_from_zero(steps, series)])
    if axis := steps_of_epochs(rows.column(EPOCH), series.values()):
        return axis
    note = "no member holds the step: entries were numbered from 1; name one with --map step=MEMBER"
    return StepAxis(np.arange(1, len(rows.lines) + 1), [note], "entry")


def _as_lines(data: bytes) -> bytes:
    """Return a list of objects as lines, up to the first incomplete object."""
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
