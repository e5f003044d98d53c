"""What MMEngine's and MMCV's JSON logs share: names, and that an evaluation belongs to the update logged before it."""

import numpy as np
from numpy.typing import NDArray

from ckaudit.importers.tables.curves import Curves
from ckaudit.importers.tables.field_map import As, Names, Taken
from ckaudit.importers.tables.jsonrows import JsonRows
from ckaudit.importers.tables.numbers import carried, ratio

MEGABYTE = 2**20
OF_TRAINING = ("train_loss_raw", "learning_rate", "grad_global_norm", "gpu_mem_used", "step_time", "dataloader_stall_frac")
NAMES: Names = {
    "loss": As("train_loss_raw"),
    "lr": As("learning_rate"),
    "grad_norm": As("grad_global_norm"),
    "time": As("step_time"),
    "memory": As("gpu_mem_used", MEGABYTE),
    **dict.fromkeys(("base_lr", "data_time", "epoch", "iter"), As("")),
}


def curves_of(rows: JsonRows, taken: Taken, steps: NDArray[np.int64], training: NDArray[np.bool_], notes: list[str]) -> Curves:
    """Return the series of a log, those of training only from its entries of training.

    Args:
        rows: What was read.
        taken: Its series.
        steps: Of each entry, right for those of training.
        training: Whether the entry is of training; others evaluate.
        notes: What to say of the steps.
    """
    series = {name: values for name, values in taken.series.items() if name != "step"}
    if "val_loss" not in series and (loss := series.get("train_loss_raw")) is not None and (loss.recorded & ~training).any():
        series["val_loss"] = loss.only(~training)
    if share := ratio(rows.column("data_time"), rows.column("time")):
        series["dataloader_stall_frac"] = share
    for name in OF_TRAINING:
        if name in series:
            series[name] = series[name].only(training)
    return Curves(np.where(training, steps, carried(steps, training)), series, [*taken.notes, *notes], taken.layers)
