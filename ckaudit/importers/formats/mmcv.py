"""MMCV's `*.log.json`: a line of metadata, then one object per log interval with `mode`, `epoch` and `iter`.

Where epochs are counted, `iter` restarts in each epoch, and the number of iterations per epoch is not written: the largest
logged number is used. The iterations of an evaluation are its own, so it is assigned to the last update logged before
it. `memory` is the maximum so far in MiB; numbers are rounded to five decimals.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from ckaudit.importers.formats.mmengine import NAMES, curves_of
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.tables.curves import imported_run
from ckaudit.importers.tables.field_map import SCALARS_ONLY, is_wanted, map_members
from ckaudit.importers.tables.jsonrows import JsonRows, read_rows, sample
from ckaudit.importers.tables.numbers import NO_STEP, steps_from

NAME = "MMCV JSON log"
GENERIC = False

_MODES = ("train", "val")
_META = ("seed", "exp_name")
_SILENT = ("mode", "env_info", "config", "mmseg_version", "mmdet_version", "CLASSES", "PALETTE", "hook_msgs", *_META)


def detects(source: Source) -> bool:
    """Tell whether a line has the members that only this logger writes together."""
    return any(row.get("mode") in _MODES and {"epoch", "iter"} <= row.keys() for row in sample(source.head))


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the log.

    Raises:
        UnreadableError: Where nothing was logged.
        UsageError: Where `columns` names something that does not exist.
    """
    wanted = is_wanted(columns, NAMES)
    rows = read_rows(
        source.data, source.shown, lambda key: key in ("iter", "epoch", "data_time") or wanted(key), texts=("mode", *_META)
    )
    mapped = map_members(rows, columns, NAMES, silent=_SILENT)
    modes = rows.texts.get("mode") or [None] * len(rows.lines)
    training = np.array([mode == "train" for mode in modes], bool)
    steps, step_notes = _steps(rows, training)
    if "step" in mapped.series:
        steps, step_notes = steps_from(mapped.series["step"]), []
    curves = curves_of(rows, mapped, steps, training, step_notes)
    imported = imported_run(curves, source.shown, NAME, size=rows.size_text, notes=rows.notes, last=SCALARS_ONLY)
    imported.manifest.name = _first(rows.texts.get("exp_name", ()), str) or UNSET
    seed = _first(rows.texts.get("seed", ()), int)
    imported.manifest.seed = UNSET if seed is None else seed
    return [imported]


def _steps(rows: JsonRows, training: NDArray[np.bool_]) -> tuple[NDArray[np.int64], list[str]]:
    """Return the step of each training entry, and notes on how it was derived."""
    place = steps_from(rows.column("iter").only(training))
    epoch = steps_from(rows.column("epoch").only(training))
    known = (place != NO_STEP) & (epoch != NO_STEP)
    if not (np.diff(place[known]) < 0).any():
        return place, []
    longest = int(place[known].max())
    note = (
        f"iterations begin anew in each epoch, and its length is not written: taken as {longest:,}, the largest number logged, "
        "so that steps may be too low by less than the distance between two entries for each epoch before"
    )
    return np.where(known, (np.maximum(epoch, 1) - 1) * longest + place, NO_STEP), [note]


def _first(cells: Sequence[Any], kind: type) -> Any:
    return next((cell for cell in cells if cell.__class__ is kind), None)
