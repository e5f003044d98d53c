"""The axis of a log: which update an entry belongs to, by what the log counts."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ckaudit.importers.tables.numbers import NO_STEP, Numbers, steps_from

CALLS = "_step"  # of Weights & Biases
CARRIED = "steps are those of {}; an entry without it stands where the last one with it stood"
ONLY_CALLS = "_step counts calls of log, which may be more or fewer than updates; --map step=NAME decides otherwise"
_LOSSES = ("train_loss_raw", "val_loss")


def steps_of(values: Numbers, lines: Sequence[int]) -> tuple[NDArray[np.int64], list[str]]:
    """Return steps, and say which rows had none."""
    steps = steps_from(values)
    lost = np.flatnonzero(steps == NO_STEP)
    if not len(lost):
        return steps, []
    return steps, [f"{len(lost):,} rows have no whole step of 0 or more and were left out, first line {lines[lost[0]]:,}"]


def steps_of_tokens(tokens: Numbers, per_update: Numbers) -> NDArray[np.int64] | None:
    """Return tokens / tokens_per_update where both are known in every row and the quotient is whole, else None."""
    if not (tokens.recorded & per_update.recorded & (per_update.values != 0)).all():
        return None
    with np.errstate(invalid="ignore"):
        steps = steps_from(Numbers(tokens.values / per_update.values, tokens.recorded))
    return None if (steps == NO_STEP).any() else steps


def steps_of_epochs(epochs: Numbers) -> tuple[NDArray[np.int64], list[str]] | None:
    """Return one step for each epoch, and say so; None where a row is no whole epoch of its own.

    Epochs that count from 0 are counted from 1: step N is the end of the N-th.
    """
    steps = steps_from(epochs)
    if not len(steps) or (steps == NO_STEP).any() or (steps[1:] == steps[:-1]).any():
        return None
    shift = int(steps.min() == 0)
    counted = ", which the file counts from 0" if shift else ""
    note = f"no column holds the step: epochs are the axis, step N here is the end of epoch N{counted}"
    return steps + shift, [f"{note}; how many updates an epoch took is not recorded"]


def counter_of_updates(counters: Mapping[str, Numbers], series: Mapping[str, Numbers]) -> str:
    """Return which counter counts updates wherever a loss was logged, where another one only counts calls of log.

    Args:
        counters: Columns that may hold the step, by their own names.
        series: Columns by catalogue name.

    Returns:
        Its name; empty: none does, or no counter counts calls.
    """
    losses = [series[name].recorded for name in _LOSSES if name in series]
    if not losses or CALLS not in counters:
        return ""
    there = np.logical_or.reduce(losses)
    return next((name for name, column in counters.items() if name != CALLS and column.recorded[there].all()), "")


def counted_from_zero(steps: NDArray[np.int64], series: Mapping[str, Numbers]) -> list[str]:
    """Say that steps count from 0 where the first row holds a training loss at step 0."""
    loss = series.get("train_loss_raw")
    if loss is None or not len(steps) or steps[0] != 0 or not loss.recorded[0]:
        return []
    return ["its steps count from 0 and were kept: step N here may be update N + 1"]
