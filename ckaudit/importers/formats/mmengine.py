"""MMEngine's `vis_data/*.json`: one object per log interval, and one per evaluation.

`step` counts finished iterations from 1. In an evaluation it is the epoch, or 0 outside the training loop, so an evaluation is
assigned to the last update logged before it. `loss` and times are means over the last iterations, `grad_norm` is taken before
clipping, `memory` is the maximum so far in MiB. Each start of training writes its own file.
"""

import re
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import catalogue_name
from ckaudit.importers.tables.curves import Curves, imported_run, steps_of
from ckaudit.importers.tables.field_map import SCALARS_ONLY, Mapped, MappedSeries, Names, is_wanted, map_members
from ckaudit.importers.tables.jsonrows import JsonRows, Object, read_rows, sample
from ckaudit.importers.tables.numbers import forward_fill, ratio

NAME = "MMEngine JSON log"
GENERIC = False
_WHOLE_LOGS = ("scalars.json", "vis_data/scalars.json")
_START = re.compile(r"\d{8}_\d{6}")
MEGABYTE = 2**20
_ONLY_TRAINING = frozenset({"train_loss_raw", "learning_rate", "grad_global_norm"})
OF_TRAINING = ("train_loss_raw", "learning_rate", "grad_global_norm", "gpu_mem_used", "step_time", "dataloader_stall_frac")
NAMES: Names = {
    "loss": Mapped("train_loss_raw"),
    "lr": Mapped("learning_rate"),
    "grad_norm": Mapped("grad_global_norm"),
    "time": Mapped("step_time"),
    "memory": Mapped("gpu_mem_used", MEGABYTE),
    **dict.fromkeys(("base_lr", "data_time", "epoch", "iter"), Mapped("")),
}


def detects(source: Source) -> bool:
    """Tell whether a log has the members that only this logger writes together, or a folder holds such a log."""
    if source.is_folder:
        return any(_is_log(file) for _, file in _inside(source))
    return _is_log(source)


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the log, or the logs of all training starts in a folder.

    Raises:
        UnreadableError: Where nothing was logged.
        UsageError: Where `columns` names something that does not exist.
    """
    if not source.is_folder:
        return [_read(source, columns, "")]
    logs = [(name, file) for name, file in _inside(source) if _is_log(file)]
    return [_read(file, columns, name if len(logs) > 1 else "") for name, file in logs]


def _is_log(source: Source) -> bool:
    rows = sample(source.head)
    return any(map(_trains, rows)) or (bool(rows) and all(map(_evaluates, rows)))


def _trains(row: Object) -> bool:
    """Tell whether an entry has the members of a training entry; without epochs, where updates are counted, it has no `epoch`."""
    own = {"base_lr", "data_time", "memory"} & row.keys()
    return {"iter", "step"} <= row.keys() and bool(own if "epoch" in row else {"data_time", "memory"} <= own)


def _evaluates(row: Object) -> bool:
    """Tell whether an entry has an evaluation's members and no training metric, which other programs log with the same times."""
    return {"step", "data_time", "time"} <= row.keys() and not any(catalogue_name(key) in _ONLY_TRAINING for key in row)


def _inside(source: Source) -> list[tuple[str, Source]]:
    """Return the logs in a folder, which holds one start or several; each has the time of its start as name."""
    whole = [(name, file) for name in _WHOLE_LOGS if (file := source.inside(name)) is not None and not file.is_folder]
    if whole:
        return whole[:1]
    paths = [path for pattern in ("*.json", "vis_data/*.json", "*/vis_data/*.json") for path in source.path.glob(pattern)]
    names = sorted(path.relative_to(source.path).as_posix() for path in paths if _START.fullmatch(path.stem))
    files = [(name, source.inside(name)) for name in names]
    return [(file.path.stem, file) for _, file in files if file is not None and not file.is_folder]


def _read(source: Source, columns: Mapping[str, str], name: str) -> Imported:
    wanted = is_wanted(columns, NAMES)
    rows = read_rows(source.data, source.shown, lambda key: key in ("iter", "data_time") or wanted(key))
    mapped = map_members(rows, columns, NAMES)
    steps, step_notes = steps_of(mapped.series.get("step", rows.column("step")), rows.lines)
    training = rows.column("iter").recorded
    if count := int((~training).sum()):
        step_notes.append(f"{count:,} evaluations say no update: each was put to the last one logged before it")
    if "train_loss_raw" in mapped.series:
        step_notes.append("losses and times are means over the last iterations, as this logger smooths them")
    curves = curves_of(rows, mapped, steps, training, step_notes)
    return imported_run(curves, source.shown, NAME, size=rows.size_text, notes=rows.notes, last=SCALARS_ONLY, name=name)


# MMCV's JSON log has the same names, and its evaluations too are assigned to the last update logged before them.
def curves_of(
    rows: JsonRows, mapped: MappedSeries, steps: NDArray[np.int64], training: NDArray[np.bool_], notes: list[str]
) -> Curves:
    """Return the series of a log; training series come only from training entries.

    Args:
        rows: The entries.
        mapped: Their series.
        steps: Step of each entry; correct for training entries.
        training: Whether the entry belongs to training; others are evaluations.
        notes: Notes on the steps.
    """
    series = {name: values for name, values in mapped.series.items() if name != "step"}
    if "val_loss" not in series and (loss := series.get("train_loss_raw")) is not None and (loss.recorded & ~training).any():
        series["val_loss"] = loss.only(~training)
    if share := ratio(rows.column("data_time"), rows.column("time")):
        series["dataloader_stall_frac"] = share
    for name in OF_TRAINING:
        if name in series:
            series[name] = series[name].only(training)
    return Curves(np.where(training, steps, forward_fill(steps, training)), series, [*mapped.notes, *notes], mapped.layers)
