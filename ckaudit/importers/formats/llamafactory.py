"""LLaMA-Factory's `trainer_log.jsonl`: the Trainer's log, one object per log call.

`current_steps` counts optimizer updates; `loss` is the mean over the updates since the previous entry. The writer omits members
without a value. `throughput` is the mean over the whole training so far; its tokens are 0 unless the Trainer was told to count
them. Times are whole seconds since the start.
"""

from collections.abc import Mapping

from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.tables.curves import Curves, imported_run, steps_of
from ckaudit.importers.tables.field_map import Mapped, Names, is_wanted, map_members
from ckaudit.importers.tables.jsonrows import read_rows, sample

NAME = "LLaMA-Factory trainer_log.jsonl"
GENERIC = False

_NAMES: Names = {
    "current_steps": Mapped("step"),
    "loss": Mapped("train_loss_raw"),
    "eval_loss": Mapped("val_loss"),
    "lr": Mapped("learning_rate"),
    "learning_rate": Mapped("learning_rate"),
    "total_tokens": Mapped("tokens_seen"),
    "vram_allocated": Mapped("gpu_mem_used", 2**30),
    **dict.fromkeys(("total_steps", "throughput", "predict_loss", "vram_reserved"), Mapped("")),
}
_SILENT = ("epoch", "percentage", "elapsed_time", "remaining_time")
_LAST = (
    "the log holds scalars only, and its throughput and clock are those of the whole training so far, which says little of a "
    "step; trainer_state.json beside it has the gradient norm as well"
)


def detects(source: Source) -> bool:
    """Tell whether a line has the members of the trainer's progress."""
    return any({"current_steps", "total_steps"} <= row.keys() for row in sample(source.head))


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the log.

    Raises:
        UnreadableError: Where nothing was logged.
        UsageError: Where `columns` names something that does not exist.
    """
    wanted = is_wanted(columns, _NAMES)
    rows = read_rows(source.data, source.shown, lambda key: key == "total_steps" or wanted(key))
    tokens = rows.column("total_tokens")
    counted = not tokens.count or bool((tokens.values > 0).any())
    mapped = map_members(rows, columns, _NAMES if counted else {**_NAMES, "total_tokens": Mapped("")}, silent=_SILENT)
    series = dict(mapped.series)
    steps, step_notes = steps_of(series.pop("step", rows.column("current_steps")), rows.lines)
    notes = [*mapped.notes, *step_notes, *([] if counted else ["total_tokens is 0 all along: tokens were not counted"])]
    imported = imported_run(
        Curves(steps, series, notes, mapped.layers), source.shown, NAME, size=rows.size_text, notes=rows.notes, last=_LAST
    )
    column = rows.column("total_steps")
    known = column.values[column.recorded]
    if planned := int(known[-1]) if len(known) and 0 < known[-1] < 2**53 else 0:
        imported.manifest.planned_steps = planned
    return [imported]
