"""Trainings of several ranks: one process each, that exchange gradients over gloo."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.multiprocessing.spawn import spawn

from ckaudit.contract.io.grids import GridEncoding
from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.training import Training


def train(
    plan: Plan, change: Change, folder: Path, *, grids: GridEncoding = "q8", on_step: Callable[[int], object] = lambda _: None
) -> None:
    """Carry a plan out, in this process or in as many as it has ranks, and let the change finish the files.

    Args:
        plan: The healthy training.
        change: What steps in; with several ranks it is sent to each of them, so that its class must be importable.
        folder: The run folder.
        grids: How sampled weights and attention are written.
        on_step: Called after each step of a training with one rank.

    Raises:
        ProcessRaisedException: If a rank failed; the others are stopped.
    """
    ranks = change.plan(plan).ranks
    if ranks == 1:
        Training(plan, change, folder, grids=grids).run(on_step=on_step)
    else:
        with TemporaryDirectory() as meeting:
            arguments = (ranks, f"file://{meeting}/ranks", plan, change, folder, grids)
            spawn(_rank, args=arguments, nprocs=ranks)
    change.finished(folder)


def _rank(rank: int, ranks: int, meeting: str, plan: Plan, change: Change, folder: Path, grids: GridEncoding) -> None:
    torch.set_num_threads(1)
    distributed = torch.distributed
    distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks, timeout=timedelta(minutes=10))
    try:
        Training(plan, change, folder, rank=rank, grids=grids).run()
        distributed.barrier()
    finally:
        distributed.destroy_process_group()
