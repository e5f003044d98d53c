"""What each rank says of itself: its own time, and hashes of what all ranks should have alike."""

from collections.abc import Iterable, Mapping
from time import time

import torch
from msgspec import UNSET
from torch import Tensor

from ckaudit.contract.schema.checkpoint import Checkpoint, RankFacts
from ckaudit.recorder.loop.step_clock import StepClock
from ckaudit.recorder.stats.arrays import Array, bytes_hash, is_sharded, local

INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class RankNotes:
    """Writes the facts of one rank.

    Args:
        rank: Its number.
        parameters: The parameters of its replica; those that it holds a part of are left out of the hash.
        clock: What measures its steps.
    """

    def __init__(self, rank: int, parameters: Mapping[str, Tensor], clock: StepClock) -> None:
        self._rank, self._clock = rank, clock
        self._is_cuda = any(tensor.is_cuda for tensor in parameters.values())
        self._parameters = [local(tensor) for tensor in parameters.values() if _is_held_whole(tensor)]

    def checkpoint(self, step: int, session: int | None, data_hash: str | None) -> Checkpoint:
        """Return the rank's own file of a step."""
        now, digest = round(time(), 3), parameter_hash(self._parameters)
        facts = RankFacts(
            parameter_hash=UNSET if digest is None else digest, data_hash=UNSET if data_hash is None else data_hash, heartbeat=now
        )
        if step:
            own, waiting = self._clock.take()
            facts.step_time = round(max(own, 0.0), 6)
            facts.input_time = UNSET if waiting is None else round(max(waiting, 0.0), 6)
        if self._is_cuda:
            facts.memory_used = torch.cuda.memory_allocated()
        return Checkpoint(
            schema_version="ck.analysis.v1",
            step=step,
            time=now,
            session=UNSET if session is None else session,
            rank=self._rank,
            rank_facts=facts,
        )


def parameter_hash(parameters: Iterable[Tensor]) -> str | None:
    """Return a hash of the sum of each tensor's bits, read as integers; None of no tensor.

    Integers add up to the same in every order, so that ranks with equal weights have equal hashes, and a tensor is read
    once, where it is. Two changes in one tensor that cancel each other are not seen.
    """
    sums = [_sum_of_bits(tensor) for tensor in parameters if not tensor.is_meta]
    return bytes_hash(torch.stack([sum_.to(sums[0].device) for sum_ in sums])) if sums else None


def _is_held_whole(tensor: Array) -> bool:
    return not is_sharded(tensor) or all(placement.is_replicate() for placement in tensor.placements)


def _sum_of_bits(tensor: Tensor) -> Tensor:
    values = tensor.detach()
    values = torch.view_as_real(values) if values.is_complex() else values
    return values.view(INTEGERS[values.element_size()]).sum(dtype=torch.int64)
