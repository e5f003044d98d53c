"""Hardware: what the accelerators do during a step, as measured by the trainer or else from per-rank files."""

import numpy as np

from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled, logged_as, ratio
from ckaudit.metrics.ranks import rank_memory
from ckaudit.metrics.reductions import across
from ckaudit.run.run import Run
from ckaudit.run.series import Series


@metric(unit="%", reads=["gpu_util"], source="catalogue M42; NVML, utilization rates", memory=1, worst="low")
def gpu_util(run: Run) -> Series:
    r"""Share of the time in which the accelerator runs any kernel.

    $$100 \cdot \frac{\text{time with a kernel running}}{\text{time}}$$

    Shape (T, D): logged steps by devices, as logged; one column if the log does not distinguish devices. A high value means
    little, because one small kernel at a time suffices; a low value with long steps is a stall.
    """
    return run.scalar("gpu_util")


@metric(unit="bytes", reads=["gpu_mem_used", rank_memory], source="catalogue M43", memory=1)
def gpu_mem_used(run: Run) -> Series:
    r"""Device memory in use.

    $$\max_r m_r$$

    Shape (T, D): logged steps by devices, as logged; if nothing is logged, the fullest rank at each checkpoint.
    """
    return run.scalar("gpu_mem_used") or across(rank_memory(run), np.nanmax, "gpu_mem_used", "bytes")


def _share(run: Run, part: str, name: str) -> Series:
    """Return the mean over ranks of a part's share of the step time, or else what is logged under `name`."""
    shares = ratio(run.value(f"rank_facts.{part}"), run.value("rank_facts.step_time"))
    return filled(across(shares, np.nanmean, name, "1"), logged_as(run, name))


@metric(
    unit="1", reads=["rank_facts.input_time", "rank_facts.step_time", "dataloader_stall_frac"], source="catalogue M44", memory=1
)
def dataloader_stall_frac(run: Run) -> Series:
    r"""Share of the step that is spent waiting for data.

    $$\tfrac1R \sum_r t^{input}_r / t_r$$

    Shape (T, 1), 0 to 1: checkpoints with per-rank files, the mean over ranks; logged steps elsewhere. The step time of a rank
    excludes waiting for other ranks.
    """
    return _share(run, "input_time", "dataloader_stall_frac")


@metric(unit="1", reads=["rank_facts.comm_time", "rank_facts.step_time", "comm_time_frac"], source="catalogue M45", memory=1)
def comm_time_frac(run: Run) -> Series:
    r"""Share of the step that is spent communicating.

    $$\tfrac1R \sum_r t^{comm}_r / t_r$$

    Shape (T, 1), 0 to 1: as dataloader_stall_frac.
    """
    return _share(run, "comm_time", "comm_time_frac")


@metric(
    unit="1", reads=["rank_facts.compute_time", "rank_facts.step_time", "compute_time_frac"], source="catalogue M46", memory=1
)
def compute_time_frac(run: Run) -> Series:
    r"""Share of the step that is spent computing.

    $$\tfrac1R \sum_r t^{compute}_r / t_r$$

    Shape (T, 1), 0 to 1: as dataloader_stall_frac.
    """
    return _share(run, "compute_time", "compute_time_frac")
