"""Ranks: step time and memory of each process of a distributed training, and the delay of the slowest."""

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled, logged_as
from ckaudit.metrics.reductions import across
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Mask, Series, Steps


@metric(unit="s", reads=["rank_facts.step_time"], source="catalogue M40", memory=1)
def rank_step_time(run: Run) -> Series:
    r"""Duration of the step on each rank.

    $$t_r$$

    Shape (C, R): checkpoints by ranks, from their own files. Not recorded if a rank wrote no file.
    """
    return run.value("rank_facts.step_time")


@metric(unit="1", reads=[rank_step_time, "straggler_ratio"], source="catalogue M47; MegaScale, Jiang et al. 2024", memory=1)
def straggler_ratio(run: Run) -> Series:
    r"""Step time of the slowest rank relative to that of the median rank.

    $$\max_r t_r / \operatorname{median}_r t_r$$

    Shape (T, 1): checkpoints with the files of two ranks or more, 1 if all are equal; logged steps of the trainer elsewhere.
    """
    times = rank_step_time(run)
    several = times.finite & (times.finite.sum(axis=1) > 1)[:, None]
    series = across(replace(times, recorded=several), _slowest, "straggler_ratio", "1")
    return filled(series, logged_as(run, "straggler_ratio"))


@metric(unit="bytes", reads=["rank_facts.memory_used"], source="catalogue M43", memory=1)
def rank_memory(run: Run) -> Series:
    r"""Device memory in use on each rank.

    $$m_r$$

    Shape (C, R): checkpoints by ranks, from their own files.
    """
    return run.value("rank_facts.memory_used")


def behind_others(times: Series) -> Series:
    """Return each rank's time relative to the median of the other ranks, (C, R); not recorded if no other time is known.

    The other ranks' median excludes the slow rank. The common median of two ranks is their mean, which includes it.

    Args:
        times: Result of `rank_step_time`.
    """
    values = np.where(times.finite, times.values, np.nan)
    order = np.argsort(values, axis=1, kind="stable")  # NaN sorts last
    ordered, place = np.take_along_axis(values, order, axis=1), np.argsort(order, axis=1)
    others = np.isfinite(values).sum(axis=1, keepdims=True) - 1
    middle = (_of_others(ordered, place, np.maximum(others - 1, 0) // 2) + _of_others(ordered, place, others // 2)) / 2
    recorded = times.recorded & (others > 0)
    with np.errstate(all="ignore"):
        return replace(times, values=np.where(recorded, times.values / middle, np.nan), recorded=recorded)


def slowest(times: Series, rows: Mask) -> tuple[str, float] | None:
    """Return the rank that was slowest most often, and at which share of the checkpoints; None without two known ranks.

    Args:
        times: Result of `rank_step_time`.
        rows: The checkpoints that count, shape (C,).
    """
    known = rows & (times.finite.sum(axis=1) > 1)
    if not known.any():
        return None
    worst = np.where(times.finite[known], times.values[known], -np.inf).argmax(axis=1)
    counts = np.bincount(worst)
    return times.labels[int(counts.argmax())], float(counts.max() / len(worst))


def _of_others(ordered: Floats, place: Steps, rank: Steps) -> Floats:
    """Return the value at index `rank` of each cell's sorted row without that cell, (T, R)."""
    columns = np.minimum(rank + (place <= rank), ordered.shape[1] - 1)
    return np.take_along_axis(ordered, columns, axis=1)


def _slowest(times: Floats, axis: int) -> Floats:
    with np.errstate(all="ignore"):
        return np.asarray(np.nanmax(times, axis=axis) / np.nanmedian(times, axis=axis))
