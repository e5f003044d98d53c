"""detectron2's `metrics.json`: one JSON object per line and write, with sorted keys.

`iteration` counts from 0, so iteration 19 is update 20. Losses, times and the learning rate are medians over the last 20
iterations unless a writer was configured otherwise. An evaluation has the iteration that it followed; the one after the last
update has an iteration one higher. A resumed run appends to the same file.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.tables.curves import Curves, imported_run, steps_of
from ckaudit.importers.tables.field_map import SCALARS_ONLY, Mapped, Names, is_wanted, map_members
from ckaudit.importers.tables.jsonrows import read_rows, sample
from ckaudit.importers.tables.numbers import NO_STEP, Numbers, ratio

NAME = "detectron2 metrics.json"
GENERIC = False

_TIMES = ("time", "data_time", "eval_time", "rank_data_time")
_NAMES: Names = {
    "iteration": Mapped("step"),
    "total_loss": Mapped("train_loss_raw"),
    "loss": Mapped("train_loss_raw"),
    "total_val_loss": Mapped("val_loss"),
    "lr": Mapped("learning_rate"),
    "time": Mapped("step_time"),
    **dict.fromkeys(("data_time", "eta_seconds", "rank_data_time", "eval_time"), Mapped("")),
}


def detects(source: Source) -> bool:
    """Tell whether a row has members that only this writer has together."""
    marks = {"total_loss", "eta_seconds", "data_time"}
    return any("iteration" in row and not marks.isdisjoint(row) for row in sample(source.head))


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the log.

    Raises:
        UnreadableError: Where nothing was logged.
        UsageError: Where `columns` names something that does not exist.
    """
    wanted = is_wanted(columns, _NAMES)
    rows = read_rows(source.data, source.shown, lambda key: key in _TIMES or wanted(key))
    mapped = map_members(rows, columns, _NAMES)
    series = dict(mapped.series)
    steps, step_notes = steps_of(series.pop("step", rows.column("iteration")), rows.lines)
    if "step" not in columns:
        steps = _counted_from_one(steps, series.get("train_loss_raw"))
        step_notes.append("iterations count from 0: iteration N is step N + 1")
    if share := ratio(rows.column("data_time"), rows.column("time")):
        series["dataloader_stall_frac"] = share
    step_notes.append("losses, times and the learning rate are medians of the last 20 iterations, as this writer smooths them")
    curves = Curves(steps, series, [*mapped.notes, *step_notes], mapped.layers)
    return [imported_run(curves, source.shown, NAME, size=rows.size_text, notes=rows.notes, last=SCALARS_ONLY)]


def _counted_from_one(steps: NDArray[np.int64], loss: Numbers | None) -> NDArray[np.int64]:
    """Return steps counted from 1; an evaluation after the last update gets the step of that update."""
    from_one = np.where(steps == NO_STEP, NO_STEP, steps + 1)
    if loss is None or not (trained := loss.recorded & (steps != NO_STEP)).any():
        return from_one
    end = int(steps[trained].max()) + 1
    return np.where(~loss.recorded & (steps == end), end, from_one)
