"""Which part of the recorder runs in this process: all of it on the first rank, the little that others can tell on them."""

import os
from collections.abc import Mapping
from typing import Any, TypeAlias

import torch
from torch.optim import Optimizer

from ckaudit.contract.cadence import is_due
from ckaudit.contract.io.encode import encode
from ckaudit.contract.io.files import checkpoint_file_name
from ckaudit.contract.io.write import write_atomic
from ckaudit.contract.schema.analysis import Checkpoint, GradientsSource
from ckaudit.recorder.batches import batch_hash
from ckaudit.recorder.distributed.allreduce_wait import ExchangeWait
from ckaudit.recorder.distributed.rank_stats import RankNotes
from ckaudit.recorder.distributed.shards import Shards
from ckaudit.recorder.files.manifest import load
from ckaudit.recorder.files.run_folder import Background
from ckaudit.recorder.loop.session import RunSession
from ckaudit.recorder.loop.step_clock import StepClock
from ckaudit.recorder.model.gradient_norms import present
from ckaudit.recorder.model.optimizers import as_sequence, state_finite
from ckaudit.recorder.model.tensor_table import parameters
from ckaudit.recorder.setup import Setup
from ckaudit.recorder.stats.arrays import is_sharded


# The recorder on every rank but the first: it tells what only this rank knows, and measures nothing.
class WorkerSession:
    """What `RunSession` is on the first rank, with the same methods.

    Its files appear where the cadence asks and at the last of the planned steps. Those of step 0 wait for the end of the
    first step, at which the first rank has certainly opened the folder.
    """

    def __init__(self, setup: Setup, *, rank: int, clock: StepClock, shards: Shards | None) -> None:
        self._path, self._guard, self._rank, self._options = setup.path, setup.guard, rank, setup.options
        self._parameters = parameters(setup.model)
        self._clock, self._notes = clock, RankNotes(rank, self._parameters, clock)
        self._planned_steps, self._step = setup.facts.get("planned_steps"), setup.start_step
        self._shards, self._has_read, self._optimizers = shards, False, as_sequence(setup.optimizer)
        self._background, self._process = Background(setup.guard), os.getpid()
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
        """Note when the gradients were there, and help to bring them where that needs all ranks."""
        self._clock.gradients_ready()
        self._has_read = True
        if self._options.grad_of is None and self._shards is None:
            return
        found = present(self._parameters, self._options.grad_of)
        if self._shards is not None:
            self._shards.norms(found)
            self._shards.each("gradients")
            self._shards.keep()

    def read_clipped(self, _max_norm: float, _norm: float | None) -> None:
        """Do as `read_gradients` does."""
        self.read_gradients("post_clip")

    def read_for_clipping(self, _max_norm: float) -> None:
        """Do as `read_gradients` does where the first rank does it too; torch clips."""
        self._read_once()

    def log(self, values: Mapping[str, Any]) -> None:
        """Do nothing: the first rank writes the lines."""

    def log_after(self, values: Mapping[str, Any]) -> None:
        """Do nothing: the first rank writes the lines."""

    def finish_step(self, _loss: Any, start: float, *, batch: Any, batch_id: Any = None, source: Any = None) -> None:  # noqa: ARG002
        """Write the facts of this rank where a checkpoint is due."""
        self._step += 1
        due = is_due(self._step, self._options.cadence) or self._step == self._planned_steps
        due = due or (self._shards is not None and self._shards.owes("weights"))
        self._clock.finish(start, 0.0, watched=due)
        try:
            if due:
                self._held.append(self._notes.checkpoint(self._step, None, self._hash(batch)))
            while self._held:
                self._write(self._held.pop(0))
        finally:
            self._help()
            self._has_read = False
            self._clock.restart()

    def close(self) -> None:
        """Wait for the disk."""
        if os.getpid() != self._process:
            return
        self._clock.close()
        if self._shards is not None:
            self._shards.leave()
        for handle in self._handles:
            handle.remove()
        self._background.close()

    def _before_update(self, _optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        with self._guard("looking before the update"):
            self._read_once()

    def _read_once(self) -> None:
        self._clock.gradients_ready()
        if not self._has_read and self._options.grad_of is None:
            self.read_gradients("pre_clip")

    def _help(self) -> None:
        """Do what the first rank needs of this one to see tensors as a whole."""
        if self._shards is None:
            return
        with self._guard("helping the first rank"):
            self._shards.settle(state_finite(self._optimizers))

    def _hash(self, batch: Any) -> str | None:
        with self._guard("hashing the batch"):
            return batch_hash(batch)
        return None

    def _write(self, checkpoint: Checkpoint) -> None:
        if not self._is_open:
            self._open()
        if self._session is not None:
            checkpoint.session = self._session
        path, data = self._path / checkpoint_file_name(checkpoint.step, rank=self._rank), encode(checkpoint)
        self._background.submit("writing the facts of this rank", lambda: write_atomic(path, data))

    def _open(self) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        # A rank on a machine with a disk of its own finds none.
        manifest = load(self._path)
        self._session = None if manifest is None else len(manifest.sessions or []) - 1
        self._is_open = True


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
