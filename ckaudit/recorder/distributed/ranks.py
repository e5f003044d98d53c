"""The recorder of every rank but the first: it writes that rank's step times and its hashes of batch and weights."""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from time import time
from typing import Any

import torch
from msgspec import UNSET
from torch import Tensor
from torch.optim import Optimizer

from ckaudit.contract.io.codec import encode
from ckaudit.contract.io.files import checkpoint_file_name, write_atomic
from ckaudit.contract.schema.checkpoint import Checkpoint, GradientsSource, RankFacts
from ckaudit.recorder.batch_facts import batch_hash
from ckaudit.recorder.distributed.shards import Shards
from ckaudit.recorder.files.background import Background
from ckaudit.recorder.files.manifest import load
from ckaudit.recorder.files.uploader import Uploader
from ckaudit.recorder.loop.step_clock import StepClock
from ckaudit.recorder.loop.triggers import regular_triggers
from ckaudit.recorder.model.gradient_norms import existing_gradients
from ckaudit.recorder.model.optimizers import as_sequence, state_finite
from ckaudit.recorder.model.tensor_table import parameters
from ckaudit.recorder.setup import Setup
from ckaudit.recorder.stats.arrays import Array, bytes_hash, is_sharded, local

INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class RankNotes:
    """Writes the facts of one rank.

    Args:
        rank: Number of the rank.
        parameters: The parameters of its replica; sharded ones are left out of the hash.
        clock: Measures its steps.
    """

    def __init__(self, rank: int, parameters: Mapping[str, Tensor], clock: StepClock) -> None:
        self._rank, self._clock = rank, clock
        self._is_cuda = any(tensor.is_cuda for tensor in parameters.values())
        self._parameters = [local(tensor) for tensor in parameters.values() if _is_held_whole(tensor)]

    def checkpoint(self, step: int, session: int | None, data_hash: str | None) -> Checkpoint:
        """Return the rank's checkpoint file of a step."""
        now, digest = round(time(), 3), parameter_hash(self._parameters)
        facts = RankFacts(
            parameter_hash=UNSET if digest is None else digest, data_hash=UNSET if data_hash is None else data_hash, heartbeat=now
        )
        if step:
            step_time, waiting = self._clock.take()
            facts.step_time = round(max(step_time, 0.0), 6)
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
    """Return a hash of each tensor's bits summed as integers; None without tensors.

    Integer sums do not depend on the order, so ranks with equal weights have equal hashes. A tensor is read once, on its device.
    Two changes in one tensor that cancel each other are not seen.
    """
    sums = [_sum_of_bits(tensor) for tensor in parameters if not tensor.is_meta]
    return bytes_hash(torch.stack([sum_.to(sums[0].device) for sum_ in sums])) if sums else None


def _is_held_whole(tensor: Array) -> bool:
    return not is_sharded(tensor) or all(placement.is_replicate() for placement in tensor.placements)


def _sum_of_bits(tensor: Tensor) -> Tensor:
    values = tensor.detach()
    values = torch.view_as_real(values) if values.is_complex() else values
    return values.view(INTEGERS[values.element_size()]).sum(dtype=torch.int64)


# The facts of a rank as files; nothing else is measured.
class WorkerSession:
    """Session of a rank other than the first; it has the methods of `RunSession`.

    It writes a file when the cadence says so and at the last planned step. The file of step 0 is written at the end of the first
    step, when the first rank has certainly opened the folder.
    """

    def __init__(self, setup: Setup, *, rank: int, clock: StepClock, shards: Shards | None) -> None:
        self._path, self._guard, self._rank, self._options = setup.path, setup.guard, rank, setup.options
        self._parameters = parameters(setup.model)
        self._clock, self._notes = clock, RankNotes(rank, self._parameters, clock)
        self._planned_steps, self._step, self._start_step = setup.facts.get("planned_steps"), setup.start_step, setup.start_step
        self._shards, self._has_read, self._optimizers = shards, False, as_sequence(setup.optimizer)
        self._background, self._process = Background(setup.guard), os.getpid()
        self._uploader = Uploader(setup.address, rank=rank) if setup.address else None
        self._held: list[Checkpoint] = []
        self._session: int | None = None
        self._is_open = False
        self._handles = [held.register_step_pre_hook(self._before_update) for held in self._optimizers]
        if setup.start_step == 0:
            self._held.append(self._notes.checkpoint(0, None, None))
        if shards is not None:
            shards.join(setup.start_step)
            self._help()
        self._clock.restart()

    def read_gradients(self, _source: GradientsSource) -> None:
        """Note when the gradients were complete, and take part in gathering them if that needs all ranks."""
        self._clock.gradients_ready()
        self._has_read = True
        if self._options.grad_of is None and self._shards is None:
            return
        gradients = existing_gradients(self._parameters, self._options.grad_of)
        if self._shards is not None:
            self._shards.norms(gradients)
            self._shards.gather_each("gradients")
            self._shards.keep()

    def read_clipped(self, _max_norm: float, _norm: float | None) -> None:
        """Do what `read_gradients` does."""
        self.read_gradients("post_clip")

    def read_for_clipping(self, _max_norm: float) -> None:
        """Do what `read_gradients` does if the first rank does so too; torch clips."""
        self._read_once()

    def log(self, values: Mapping[str, Any]) -> None:
        """Do nothing: the first rank writes the log lines."""

    def log_after(self, values: Mapping[str, Any]) -> None:
        """Do nothing: the first rank writes the log lines."""

    def finish_step(self, _loss: Any, start: float, *, batch: Any, batch_id: Any = None, source: Any = None) -> None:  # noqa: ARG002
        """Write the facts of this rank if a checkpoint is due."""
        self._step += 1
        due = bool(regular_triggers(self._step, self._options.cadence, self._planned_steps))
        due = due or (self._shards is not None and self._shards.owes("weights"))
        self._clock.finish(start, 0.0, watched=due)
        try:
            if due:
                self._held.append(self._notes.checkpoint(self._step, None, self._hash(batch)))
            while self._held:
                checkpoint = self._held.pop(0)
                self._background.submit("writing the facts of this rank", partial(self._write_checkpoint, checkpoint))
        finally:
            self._help()
            self._has_read = False
            self._clock.restart()

    def close(self) -> None:
        """Wait for pending writes."""
        if os.getpid() != self._process:
            return
        self._clock.close()
        if self._shards is not None:
            self._shards.leave()
        for handle in self._handles:
            handle.remove()
        try:
            self._background.close()
        finally:
            if self._uploader is not None:
                self._uploader.close()

    def _before_update(self, _optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        with self._guard("looking before the update"):
            self._read_once()

    def _read_once(self) -> None:
        self._clock.gradients_ready()
        if not self._has_read and self._options.grad_of is None:
            self.read_gradients("pre_clip")

    def _help(self) -> None:
        """Take part in the collectives by which the first rank sees whole tensors."""
        if self._shards is None:
            return
        with self._guard("helping the first rank"):
            self._shards.finish_owed(state_finite(self._optimizers))

    def _hash(self, batch: Any) -> str | None:
        with self._guard("hashing the batch"):
            return batch_hash(batch)
        return None

    def _write_checkpoint(self, checkpoint: Checkpoint) -> None:
        if not self._is_open:
            self._open()
        if self._session is not None:
            checkpoint.session = self._session
        write_atomic(self._path / checkpoint_file_name(checkpoint.step, rank=self._rank), encode(checkpoint))
        if self._uploader is not None:
            with suppress(OSError, RuntimeError):
                self._uploader.retry_start()

    def _open(self) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        # A rank on a machine with a local disk finds no manifest.
        manifest = load(self._path)
        self._session = None if manifest is None else len(manifest.sessions or []) - 1
        self._is_open = True
        if self._uploader is not None:
            with self._guard("preparing the way to the address", writes=True):
                self._uploader.open(may_fetch=False)
                self._uploader.begin(self._start_step, set())
