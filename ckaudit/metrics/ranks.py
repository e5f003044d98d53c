"""Ranks: what each process of a distributed training took, and how far the slowest falls behind."""

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.across import across
from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled, relabelled
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Series


@metric(unit="s", reads=["rank_facts.step_time"], source="catalogue M40", memory=1)
def rank_step_time(run: Run) -> Series:
    r"""Duration of the step on each rank.

    $$t_r$$

    Shape (C, R): checkpoints by ranks, as their own files say. Not recorded where a rank wrote no file.
    """
    return run.value("rank_facts.step_time")


@metric(unit="1", reads=[rank_step_time, "straggler_ratio"], source="catalogue M47; MegaScale, Jiang et al. 2024", memory=1)
def straggler_ratio(run: Run) -> Series:
    r"""Duration of the slowest rank's step over the median rank's.

    $$\max_r t_r / \operatorname{median}_r t_r$$

    Shape (T, 1): checkpoints with the files of two ranks or more, 1 where all are alike; logged steps elsewhere, as the
    trainer said.
    """
    times = rank_step_time(run)
    several = times.finite & (times.finite.sum(axis=1) > 1)[:, None]
    made = across(replace(times, recorded=several), _slowest, "straggler_ratio", "1")
    return filled(made, relabelled(run.scalar("straggler_ratio"), "straggler_ratio"))


@metric(unit="bytes", reads=["rank_facts.memory_used"], source="catalogue M43", memory=1)
def rank_memory(run: Run) -> Series:
    r"""Device memory in use on each rank.

    $$m_r$$

    Shape (C, R): checkpoints by ranks, as their own files say.
    """
    return run.value("rank_facts.memory_used")


def _slowest(times: Floats, axis: int) -> Floats:
    with np.errstate(all="ignore"):
        return np.asarray(np.nanmax(times, axis=axis) / np.nanmedian(times, axis=axis))
