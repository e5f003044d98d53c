"""Megatron-LM's golden values: one JSON object with `start_step`, `step_interval` and `values` by step for each metric.

Values were taken from TensorBoard at a fixed interval of iterations, which count finished updates. The text "nan" marks a step
that never ran or did not log the metric; it is not recorded. A logged NaN is a bare NaN. Older files list the values: the first
belongs to iteration `start_step` + 1. `iteration-time` is in seconds.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ckaudit.contract.io.codec import decode
from ckaudit.errors import UnreadableError
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import resolve_columns
from ckaudit.importers.notes_on_names import note_on_taken, notes_on_left_out
from ckaudit.importers.tables.curves import Curves, imported_run
from ckaudit.importers.tables.numbers import NO_STEP, Numbers, aligned, numbers, steps_from

NAME = "Megatron-LM golden values"
GENERIC = False

_NAMES = {
    "lm loss": "train_loss_raw",
    "iteration-time": "step_time",
    "mem-allocated-bytes": "gpu_mem_used",
    "learning-rate": "learning_rate",
    "grad-norm": "grad_global_norm",
    "loss-scale": "loss_scale",
    "lm loss validation": "val_loss",
}
_MARK = re.compile(rb'^\s*\{\s*"[^"]*"\s*:\s*\{\s*"start_step"\s*:\s*-?\d+\s*,')
_LAST = "golden values are a sample of the run, every few updates, and scalars only: nothing of single tensors was recorded"
_NEVER_RUN = "nan"


class _Metric(Struct):
    """One metric."""

    values: dict[str, Any] | list[Any]
    start_step: int = 0
    step_interval: int = 1


_DECODER = msgspec.json.Decoder(dict[str, _Metric])


def detects(source: Source) -> bool:
    """Tell whether the first metric has the members of golden values."""
    return _MARK.match(source.head.removeprefix(b"\xef\xbb\xbf")) is not None


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the values of all metrics.

    Raises:
        UnreadableError: Where the file is truncated, or holds no value.
        UsageError: Where `columns` names something that does not exist.
    """
    metrics = _metrics(source)
    names = list(metrics)
    chosen = {name: metric for metric, name in _NAMES.items() if metric in metrics}
    chosen |= {name: names[position] for name, position in resolve_columns(columns, names).items() if name != "step"}
    series = {name: _series(metrics[metric]) for name, metric in chosen.items()}
    steps, aside = aligned(series)
    run = np.logical_or.reduce([column.recorded for column in aside.values()]) if aside else np.zeros(0, bool)
    size = f"{len(names):,} metrics"
    notes = [*note_on_taken(chosen), *notes_on_left_out([metric for metric in names if metric not in chosen.values()])]
    if run.any() and steps[run][-1] != steps[-1]:
        notes.append(f"the run was to take {steps[-1]:,} steps and none is recorded after {steps[run][-1]:,}")
    if absent := sum(_cells(metrics[metric]).count(_NEVER_RUN) for metric in chosen.values()):
        notes.append(f'{absent:,} values are the text "nan": that step never ran or did not log the metric, read as not recorded')
    return [imported_run(Curves(steps, aside, notes), source.shown, NAME, size=size, last=_LAST)]


def _metrics(source: Source) -> dict[str, _Metric]:
    try:
        return decode(source.document, _DECODER).document
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableError(
            f"{source.shown} starts as {NAME}, and cannot be read to its end: {error}", hint="Fetch the file again."
        ) from None


def _series(metric: _Metric) -> tuple[NDArray[np.int64], Numbers]:
    """Return the steps and the values of a metric; values of steps that never ran are not recorded."""
    cells = _cells(metric)
    if isinstance(metric.values, list):
        steps = metric.start_step + 1 + np.arange(len(cells)) * metric.step_interval
    else:
        texts = list(metric.values)
        try:
            steps = np.array(list(map(int, texts)), np.int64)
        except (ValueError, OverflowError):
            steps = steps_from(numbers(texts))
        steps = np.where(steps < 0, NO_STEP, steps)  # also covers texts that are not steps
    return steps, numbers([None if cell == _NEVER_RUN else cell for cell in cells] if _NEVER_RUN in cells else cells)


def _cells(metric: _Metric) -> list[Any]:
    return metric.values if isinstance(metric.values, list) else list(metric.values.values())
