"""Ranks: what each process of a distributed training took, and how far the slowest falls behind."""

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.metric import metric
from ckaudit.run.run import Run
from ckaudit.run.series import Series, empty, single


@metric(unit="s", reads=["rank_facts.step_time"], source="catalogue M40", memory=1)
def rank_step_time(run: Run) -> Series:
    r"""Duration of the step on each rank.

    $$t_r$$

    Shape (C, R): checkpoints by ranks, as their own files say. Not recorded where a rank wrote no file.
    """
    return run.value("rank_facts.step_time")


@metric(unit="1", reads=[rank_step_time], source="catalogue M47; MegaScale, Jiang et al. 2024", memory=1)
def straggler_ratio(run: Run) -> Series:
    r"""Duration of the slowest rank's step over the median rank's.

    $$\max_r t_r / \operatorname{median}_r t_r$$

    Shape (C, 1). Not recorded with fewer than two ranks; 1 where all are alike.
    """
    times = rank_step_time(run)
    if not times:
        return empty("straggler_ratio")
    known = np.where(times.finite, times.values, np.nan)
    several = times.finite.sum(axis=1) > 1
    ratio = np.full(len(times.steps), np.nan)
    ratio[several] = np.nanmax(known[several], axis=1) / np.nanmedian(known[several], axis=1)
    return replace(single("straggler_ratio", "1", times.steps, ratio), recorded=several[:, None])


@metric(unit="bytes", reads=["rank_facts.memory_used"], source="catalogue M43", memory=1)
def rank_memory(run: Run) -> Series:
    r"""Device memory in use on each rank.

    $$m_r$$

    Shape (C, R): checkpoints by ranks, as their own files say.
    """
    return run.value("rank_facts.memory_used")
