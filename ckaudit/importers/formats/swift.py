"""ms-swift's `logging.jsonl`: the Trainer's log, with the step as "10/500" and times in words.

`loss` is the mean over the updates since the previous entry, `grad_norm` is taken before clipping. `memory(GiB)` is the maximum
reserved so far; the speed is the mean over the whole training so far. The last entry sums up the training.
"""

from collections.abc import Mapping
from typing import Any

from ckaudit.errors import UsageError
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.tables.curves import Curves, imported_run, steps_of
from ckaudit.importers.tables.field_map import Mapped, Names, is_wanted, map_members
from ckaudit.importers.tables.jsonrows import read_rows, sample
from ckaudit.importers.tables.numbers import numbers

NAME = "ms-swift logging.jsonl"
GENERIC = False

_STEP = "global_step/max_steps"
_OLD_STEP = "global_step"
_NAMES: Names = {
    "loss": Mapped("train_loss_raw"),
    "eval_loss": Mapped("val_loss"),
    "grad_norm": Mapped("grad_global_norm"),
    "learning_rate": Mapped("learning_rate"),
    "memory(GiB)": Mapped("gpu_mem_used", 2**30),
    "train_loss": Mapped(""),  # the mean of the whole training, in the summary
    "num_input_tokens_seen": Mapped("tokens_seen"),
}
_SILENT = (_STEP, "epoch", "percentage", "elapsed_time", "remaining_time", "train_speed(iter/s)", "train_speed(s/it)")
_LAST = (
    "the log holds scalars only; its speed is the mean of the whole training so far, which says little of a step, and its "
    "memory is the most that was ever reserved"
)


def detects(source: Source) -> bool:
    """Tell whether a line has the members that only this writer has."""
    return any(_STEP in row or {"train_speed(iter/s)", _OLD_STEP} <= row.keys() for row in sample(source.head))


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the log.

    Raises:
        UnreadableError: Where nothing was logged.
        UsageError: Where `columns` names something that does not exist.
    """
    if "step" in columns:
        raise UsageError(f"the step of {NAME} is always {_STEP}", hint="Leave out --map step=.")
    rows = read_rows(source.data, source.shown, is_wanted(columns, _NAMES), texts=(_STEP,))
    mapped = map_members(rows, columns, _NAMES, silent=_SILENT)
    series = dict(mapped.series)
    progress = rows.texts.get(_STEP)
    old = series.pop("step", rows.column(_OLD_STEP))
    steps, step_notes = steps_of(old if progress is None else numbers([_part(cell, 0) for cell in progress]), rows.lines)
    curves = Curves(steps, series, [*mapped.notes, *step_notes], mapped.layers)
    imported = imported_run(curves, source.shown, NAME, size=rows.size_text, notes=rows.notes, last=_LAST)
    if planned := int(next((last for cell in reversed(progress or ()) if (last := _part(cell, 1))), 0)):
        imported.manifest.planned_steps = planned
    return [imported]


def _part(cell: Any, which: int) -> float | None:
    """Return the step of "10/500", or the last planned step.

    >>> _part("10/500", 0), _part("10/500", 1), _part(None, 0)
    (10.0, 500.0, None)
    """
    parts = cell.split("/") if isinstance(cell, str) else ()
    return float(parts[which]) if len(parts) == 2 and parts[which].isdecimal() and len(parts[which]) < 16 else None
