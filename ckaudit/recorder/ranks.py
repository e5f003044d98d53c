"""Which part of the recorder runs in this process: all of it on the first rank, the little that others can tell on them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import nn

from ckaudit.recorder.clock import StepClock
from ckaudit.recorder.collector import Options
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.participant import Participant
from ckaudit.recorder.session import RunSession
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
    clock = StepClock(model if world_size > 1 and "" in observe["hookable"] else None)
    if rank:
        return Participant(
            model,
            path,
            guard,
            rank=rank,
            optimizer=optimizer,
            start_step=start_step,
            options=options,
            planned_steps=facts.get("planned_steps"),
            clock=clock,
        )
    return RunSession(
        model,
        path,
        guard,
        optimizer=optimizer,
        scaler=scaler,
        start_step=start_step,
        limits=limits,
        options=options,
        observe=observe,
        facts={"world_size": world_size, **facts},
        clock=clock,
        with_ranks=world_size > 1,
    )


def place() -> tuple[int, int]:
    """Return this process's rank and how many train together."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()
