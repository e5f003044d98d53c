"""Which part of the recorder runs in this process: all of it on the first rank, the little that others can tell on them."""

from typing import TypeAlias

import torch

from ckaudit.recorder.allreduce_wait import ExchangeWait
from ckaudit.recorder.arrays import is_sharded
from ckaudit.recorder.clock import StepClock
from ckaudit.recorder.session import RunSession
from ckaudit.recorder.setup import Setup
from ckaudit.recorder.shards import Shards
from ckaudit.recorder.worker_session import WorkerSession

Start: TypeAlias = RunSession | WorkerSession


def start(setup: Setup) -> Start:
    """Return this rank's part."""
    rank, world_size = place()
    shards = Shards(setup.model, setup.guard) if any(map(is_sharded, setup.model.parameters())) else None
    hooked = setup.model if setup.is_hookable else None
    # Other ranks write no lines.
    exchange = ExchangeWait(hooked, setup.guard) if hooked and world_size > 1 and not rank and shards is None else None
    clock = StepClock(hooked, alone=world_size == 1, waits_in_forward=shards is not None, exchange=exchange)
    try:
        if rank:
            return WorkerSession(setup, rank=rank, clock=clock, shards=shards)
        return RunSession(setup, world_size=world_size, clock=clock, shards=shards)
    except Exception:
        if shards is not None:
            shards.refuse()
        raise


def place() -> tuple[int, int]:
    """Return this process's rank and how many train together."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()
