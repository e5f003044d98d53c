"""Which part of the recorder runs in this process: all of it on the first rank, the little that others can tell on them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import nn

from ckaudit.recorder.arrays import is_sharded
from ckaudit.recorder.clock import StepClock
from ckaudit.recorder.collector import Options
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.participant import Participant
from ckaudit.recorder.session import RunSession
from ckaudit.recorder.shards import Shards
from ckaudit.recorder.table import inner
from ckaudit.recorder.triggers import Limits

Start: TypeAlias = RunSession | Participant


def start(
    model: nn.Module,
    path: Path,
    guard: Guard,
    *,
    optimizer: Any,
    scaler: Any,
    start_step: int,
    limits: Limits,
    options: Options,
    observe: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> Start:
    """Return this rank's part; see `Recorder` for the arguments."""
    rank, world_size = place()
    model = inner(model)
    shards = Shards(model, guard) if any(map(is_sharded, model.parameters())) else None
    clock = StepClock(model if world_size > 1 and "" in observe["hookable"] else None, waits_in_forward=shards is not None)
    common: dict[str, Any] = {"optimizer": optimizer, "start_step": start_step, "options": options}
    common |= {"clock": clock, "shards": shards}
    try:
        if rank:
            return Participant(model, path, guard, rank=rank, planned_steps=facts.get("planned_steps"), **common)
        common |= {"facts": {"world_size": world_size, **facts}, "with_ranks": world_size > 1}
        return RunSession(model, path, guard, scaler=scaler, limits=limits, observe=observe, **common)
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
