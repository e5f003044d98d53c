"""One start of a run: the current step, the triggers of checkpoints, and how a finished step reaches the folder."""

import os
from collections.abc import Callable, Mapping
from time import perf_counter, time
from typing import Any, TypeAlias

import torch
from msgspec import UNSET
from torch import Tensor
from torch.optim import Optimizer

from ckaudit.contract.schema.checkpoint import BatchFacts, Checkpoint, GradientsSource, Trigger
from ckaudit.recorder.batch_facts import add_seen_match, batch_facts, embedded_words, input_facts
from ckaudit.recorder.distributed.ranks import RankNotes, WorkerSession
from ckaudit.recorder.distributed.shards import Shards
from ckaudit.recorder.drill.settings import DRILL_ENVIRONMENT_VARIABLE, settings_from_environment
from ckaudit.recorder.files.run_folder import RunFolderWriter
from ckaudit.recorder.files.scalar_log import RESERVED, accepted_values, plain_value
from ckaudit.recorder.hooks.forward_hooks import ForwardHooks
from ckaudit.recorder.hooks.forward_stats import ForwardStats
from ckaudit.recorder.hooks.train_mode import ModeWatch
from ckaudit.recorder.hooks.vital_signs import EVERY, values_seen
from ckaudit.recorder.loop.overhead_meter import OverheadMeter
from ckaudit.recorder.loop.requests import Requests
from ckaudit.recorder.loop.step_clock import ExchangeWait, StepClock
from ckaudit.recorder.loop.step_numbers import PendingStats, fetch, finish_plain
from ckaudit.recorder.loop.step_state import StepState
from ckaudit.recorder.loop.throughput import DeviceGauge, ThroughputMeter, devices_of
from ckaudit.recorder.loop.triggers import CheckpointSchedule
from ckaudit.recorder.model.alternating_updates import AlternatingUpdates
from ckaudit.recorder.model.collector import Collector
from ckaudit.recorder.model.optimizers import Clipping, WeightWrites, hook_updates, learning_rates, norm_before_update, overflowed
from ckaudit.recorder.model.tensor_table import ForwardOrder, described
from ckaudit.recorder.setup import Setup
from ckaudit.recorder.stats.arrays import is_sharded
from ckaudit.recorder.target_alignment import shifts_labels


class RunSession:
    """The recorder between its start and its close; see `Recorder` for the arguments.

    It holds the state of the current step. `finish_step` turns that into a log line and perhaps a checkpoint, and begins the next
    step. Hooks are attached there, because a due step must be known before its forward pass.
    """

    def __init__(self, setup: Setup, *, world_size: int, clock: StepClock, shards: Shards | None) -> None:
        model, guard, start_step = setup.model, setup.guard, setup.start_step
        self._guard, self._options, self._process = guard, setup.options, os.getpid()
        self._facts, self._shifts_labels = {"world_size": world_size, **setup.facts}, shifts_labels(model)
        self._words = setup.facts.get("vocabulary") or embedded_words(model)
        planned_steps = setup.facts.get("planned_steps")
        self._schedule = CheckpointSchedule(setup.options.cadence, setup.limits, planned_steps, start_step=start_step)
        self._hooks = ForwardHooks(model, guard, setup.hooks)
        self._collector, self._is_sharded = Collector(setup, self._hooks, shards), shards is not None
        suffix = self._collector.suffix
        self._folder = RunFolderWriter(setup.path, guard, suffix=suffix, start_step=start_step, address=setup.address)
        self.requests = Requests(model, self._collector, self._folder, guard, hookable=setup.is_hookable, world_size=world_size)
        self._sent: StepState | None = None
        self._takes_closure = False
        self._clock, self._notes = clock, RankNotes(0, self._collector.parameters, clock) if world_size > 1 else None
        devices = devices_of(self._collector.weights.values())
        self._throughput = ThroughputMeter(clock, alone=world_size == 1, gauge=DeviceGauge(devices))
        self._finished: tuple[StepState, Checkpoint | None] | None = None
        self._latest_line: tuple[int, dict[str, Any]] = (start_step, {})
        self._order: ForwardOrder | None = ForwardOrder(model, setup.hooks.hookable)
        self._begin_folder(setup)
        self._turns = self._alternating_updates()
        self._writes = WeightWrites(self._collector.parameters, self._collector.optimizers)
        self._handles = hook_updates(self._collector.optimizers, guard, self._before_update, self._after_update)
        self._step_state = StepState(step=start_step)
        if start_step == 0:
            self._write_first()
        self._advance()
        self._clock.restart(self._step_state.step)
        self._modes = ModeWatch(model, lambda: self._step_state, guard, hookable=setup.is_hookable)
        self._overhead = OverheadMeter()

    def _begin_folder(self, setup: Setup) -> None:
        """Write the facts of the run that are known before its first step."""
        self._collector.join(setup.start_step, self._folder.set_session_facts)
        stated = {"cadence": [*setup.options.cadence], "triggers": setup.limits.stated(), **described(setup.model)}
        self._folder.begin(self._facts, self._collector.weights, self._collector.reference, **stated)

    def _alternating_updates(self) -> AlternatingUpdates:
        """Return the detector of optimizers that take turns, as those of a GAN do."""
        return AlternatingUpdates(
            self._collector.optimizers,
            self._guard,
            step=lambda: self._step_state.step,
            on_alternating=lambda: self._folder.describe(takes_turns=True),
        )

    def _before_update(self, optimizer: Optimizer, has_gradients: bool) -> None:
        self._takes_closure = not has_gradients
        if has_gradients:
            self._read_unread_gradients()
        if self._step_state.is_watched:
            self._collector.keep_weights(self._step_state)
        self._step_state.rates = learning_rates(self._collector.optimizers)
        # A failure from here on loses only its own part of the record.
        self._step_state.is_written |= self._writes.before_update()
        if has_gradients and self._step_state.is_due and len(self._collector.optimizers) == 1 and self._options.grad_of is None:
            self._step_state.norm_at_update = norm_before_update(optimizer)
        self._turns.before_update(optimizer, is_due=self._step_state.is_due)

    def _read_unread_gradients(self) -> None:
        if self._step_state.source is None and self._options.grad_of is None:
            self.read_gradients("pre_clip" if self._options.clip_norm is None else "post_clip")

    def _after_update(self, optimizer: Optimizer) -> None:
        # A closure, as of L-BFGS, leaves the gradients of its last call. With shards, other ranks would not take part in reading
        # them.
        if self._takes_closure and not self._is_sharded:
            self._read_unread_gradients()
        self._step_state.updates += not overflowed(optimizer)
        self._turns.after_update()
        self._step_state.is_written |= self._writes.after_update()

    def read_gradients(self, source: GradientsSource) -> None:
        """Read the gradients of the current step, and copy the weights if its checkpoint needs them."""
        self._clock.gradients_ready()
        step_state, plain = self._step_state, self._collector.plain
        if plain is None or step_state.triggers or not plain.read(step_state, source):
            self._collector.read_gradients(step_state, source)
        if step_state.is_watched:
            self._collector.keep_weights(step_state)

    def read_clipped(self, max_norm: float, norm: float | None) -> None:
        """Read gradients after clipping, corrected by their norm before it if that is known."""
        self._clock.gradients_ready()
        self._step_state.clip_norm = max_norm
        self._collector.read_gradients(self._step_state, "post_clip", Clipping(max_norm, norm))
        self._collector.keep_weights(self._step_state)

    def read_for_clipping(self, max_norm: float) -> tuple[list[Tensor], Tensor] | None:
        """Return the gradients and their norms, read again if any gradient has changed; None if torch must take the norms."""
        self._step_state.clip_norm = max_norm
        self._clock.gradients_ready()
        gradients_and_norms = self._collector.read_for_clipping(self._step_state)
        self._collector.keep_weights(self._step_state)
        return gradients_and_norms

    def ask(self) -> None:
        """Request a checkpoint of the current step."""
        if not self._step_state.is_due:
            self._step_state.triggers.append("manual")
            self._step_state.has_vitals = False
            self._collector.attach(self._step_state)

    def log(self, values: Mapping[str, Any]) -> None:
        """Add values to the log line of the current step; a value that is no scalar is left out and counted."""
        self._step_state.values |= accepted_values(values, self._guard)

    def log_after(self, values: Mapping[str, Any]) -> None:
        """Add values to the last finished step, with a second log line; existing values stay."""
        step, known = self._latest_line
        if step and self._finished is None:
            return
        new = {name: plain_value(value) for name, value in values.items() if name not in known and name not in RESERVED}
        if self._sent is not None:
            self._sent.values |= new
        elif new:
            self._folder.append(step, time(), new)
            known.update(new)

    def finish_step(self, loss: Any, start: float, *, batch: Any, batch_id: str | int | None, source: str | None) -> None:
        """Write the log line of the current step and its checkpoint, and begin the next."""
        step_state, watched, checkpoint = self._step_state, self._step_state.is_watched, None
        duration = self._clock.finish(start, step_state.seconds, watched=watched)
        if watched:
            step_state.seconds += self._hooks.seconds
            duration -= self._hooks.seconds
        self._overhead.durations.append(duration)
        self._schedule.latest, step_state.time = [], time()
        try:
            if self._sent is not None:
                self._finish_pending()
            if watched or not (
                self._is_plain() and finish_plain(step_state, loss, batch, batch_id, self._folder, self._schedule, self._guard)
            ):
                checkpoint = self._finish_at_length(step_state, loss, start, batch, batch_id, source)
        finally:
            if self._is_sharded:
                self._collector.finish_owed()
            self._finished, self._latest_line = (step_state, checkpoint), (step_state.step, step_state.values)
            self._advance()
            self._overhead.spent += step_state.seconds + self._clock.restart(self._step_state.step) - start

    def _finish_at_length(
        self, step_state: StepState, loss: Any, start: float, batch: Any, batch_id: str | int | None, source: str | None
    ) -> Checkpoint | None:
        """Write a step that is not plain, and return its checkpoint; a step with numbers on an accelerator is written later."""
        unread = step_state.unread = step_state.unread or PendingStats()
        unread.loss, checkpoint = loss, None
        with self._guard("looking at the batch"):
            step_state.is_batch_reused = self._folder.batches.is_reused(unread.take_batch(batch))
        if step_state.step % EVERY == 0:
            with self._guard("the pace of the training"):
                step_state.note(self._throughput.values(step_state, batch))
        self._collect_step_values(step_state, batch, batch_id)
        if not step_state.is_watched and unread.send():
            self._sent = step_state
            return None
        fetch(step_state, self._guard, self._folder.batches)
        if step_state.is_due:
            checkpoint = self._save(step_state, start, batch, batch_id, source)
        elif step_state.has_vitals:
            with self._guard("vital signs"):
                step_state.note(self._collector.vitals(step_state))
        self._write_line(step_state, checkpoint)
        return checkpoint

    def _save(
        self, step_state: StepState, start: float, batch: Any, batch_id: str | int | None, source: str | None
    ) -> Checkpoint | None:
        """Return the checkpoint of a step, and have it written."""
        with self._guard("building a checkpoint", writes=True):
            seen = self._hooks.detach()
            self._folder.set_attention_directions(seen.directions)
            checkpoint = self._checkpoint(step_state, seen)
            with self._guard("looking at the batch"):
                facts: dict[str, Any] = {"batch_id": batch_id, "source": source, "vocabulary": self._words}
                facts |= {"is_shifted_later": self._shifts_labels, "loss_function": checkpoint.loss_function}
                known = batch_facts(batch, input_hash=step_state.input_hash, **facts)
                # Without a batch, the model's own inputs are described, although they may not be rows of a data set.
                known = known or input_facts(seen.inputs, self._words) or BatchFacts()
                embedded, same = seen.embedded_shift_match, seen.embedded_target_share
                add_seen_match(known, batch, inputs=seen.input_shift_match, embedded=embedded, same=same)
                checkpoint.data = UNSET if known == BatchFacts() else known
            # The file cannot contain the time of its own writing, so it contains that of the last file.
            checkpoint.cost = self._overhead.cost(step_state.seconds + perf_counter() - start, self._folder.write_seconds)
            # The other ranks do not know of events: notes of the first rank alone would make them look dead.
            with_notes = self._is_sharded or bool({"cadence", "last"} & {*step_state.triggers})
            self._write(checkpoint, step_state.input_hash, with_notes=with_notes)
            return checkpoint
        return None

    def _is_plain(self) -> bool:
        return (
            not (self._order or self._step_state.is_written)
            and self._collector.scaler is None
            and self.requests.is_idle
            and bool(self._handles)
        )

    def _finish_pending(self) -> None:
        """Finish the last step, if its numbers had to be fetched from an accelerator."""
        step_state, self._sent = self._sent, None
        if step_state and step_state.unread:
            step_state.unread.arrive()
            fetch(step_state, self._guard, self._folder.batches)
            self._write_line(step_state, None)

    def _write_line(self, step_state: StepState, checkpoint: Checkpoint | None) -> None:
        """Write the log line of a step, and look for events in it."""
        with self._guard("writing scalars.jsonl", writes=True):
            self._folder.append(step_state.step, step_state.time, step_state.values)
        with self._guard("looking for events"):
            deltas = (checkpoint and checkpoint.weight_deltas) or {}
            skipped = self._collector.is_skipped(step_state)
            others: list[Trigger] = ["weights_written"] if step_state.is_written else []
            history_step, norm = step_state.history_step(deltas), step_state.global_norm
            self._schedule.observe(history_step, norm, step_state.norms, others, forgive_norm=skipped)
        self._sort_table()

    def close(self) -> None:
        """Write the last step's checkpoint, again if it has one, and the end of the session."""
        if os.getpid() != self._process:
            return
        with self._guard("reading the last step"):
            self._finish_pending()
        self._hooks.detach()
        self._clock.close()
        self._collector.leave()
        for handle in (*self._handles, *self._turns.handles, *self._modes.handles):
            handle.remove()
        self.requests.finish_step(self._step_state)
        self._sort_table()
        if self._finished:
            step_state, written = self._finished
            with self._guard("the last checkpoint", writes=True):
                last = self._schedule.conclude(step_state, written or self._checkpoint(step_state, ForwardStats()))
                self._collector.trim(last, step_state)
                self._write(last, with_notes=False)
        self._folder.close()

    def _advance(self) -> None:
        before, step, schedule = self._step_state, self._step_state.step + 1, self._schedule
        step_state = self._step_state = StepState(step=step)
        if step in (schedule.next_due, schedule.planned_steps) or schedule.latest:
            schedule.begin(step_state)
        step_state.has_vitals = step % EVERY == 0 and not step_state.is_due
        if step_state.is_watched:
            with self._guard("hooking the modules"):
                self._collector.attach(step_state, after=before)

    def _collect_step_values(self, step_state: StepState, batch: Any, batch_id: str | int | None) -> None:
        """Add the values that need no fetching to the step; logged values stay."""
        listening, scaled = bool(self._handles), self._collector.has_scaler()
        self.requests.finish_step(step_state, batch)
        with self._guard("reading the learning rate"):
            step_state.rates = step_state.rates or learning_rates(self._collector.optimizers)
        if scaled and step_state.loss_scale is None:
            with self._guard("reading the loss scale"):
                step_state.loss_scale = float(self._collector.scaler.get_scale())
        skipped = self._collector.is_skipped(step_state) if scaled and listening else None
        self._folder.steps_seen += (bool(step_state.updates) or not listening) and not skipped
        step_state.note(
            {
                "learning_rate": step_state.rates[0] if step_state.rates else None,
                "steps_seen": self._folder.steps_seen,
                "loss_scale": step_state.loss_scale,
                "skipped_updates": None if skipped is None else int(skipped),
                "batch_id": batch_id,
            }
        )

    def _checkpoint(self, step_state: StepState, seen: ForwardStats) -> Checkpoint:
        checkpoint = step_state.checkpoint(self._folder.session)
        self.requests.fill(checkpoint, step_state)
        checkpoint.model_scale_hint = self._facts.get("model_scale_hint", UNSET)
        if step_state.event_step is not None:
            checkpoint.history = self._schedule.history(before=step_state.step) or UNSET
        derived = self._collector.fill(checkpoint, step_state, seen, self._folder.reference)
        if checkpoint.optimizer and (written := self._writes.take_names()):
            checkpoint.optimizer.written = written
        step_state.note(values_seen(seen) | {"update_to_weight": derived["update_to_weight"]})
        checkpoint.scalars = step_state.scalars(**derived) or UNSET
        return checkpoint

    def _sort_table(self) -> None:
        """Write the tensor table in forward order, once a forward pass has shown the order."""
        order, self._order = self._order, None
        if order is not None:
            order.close()
            with self._guard("writing run.json", writes=True):
                self._folder.describe(tensors=order.sort(self._folder.tensors))

    def _write_first(self) -> None:
        self._step_state.triggers, self._step_state.time = ["first"], time()
        with self._guard("the first checkpoint", writes=True):
            self._write(self._checkpoint(self._step_state, ForwardStats()))
            self._folder.wait_for_writes()
        self._collector.finish_owed()

    def _write(self, checkpoint: Checkpoint, data_hash: str | None = None, *, with_notes: bool = True) -> None:
        notes = None
        if self._notes is not None and with_notes:
            with self._guard("facts of this rank"):
                notes = self._notes.checkpoint(checkpoint.step, self._folder.session, data_hash)
        with self._guard("writing a checkpoint", writes=True):
            self._folder.write(checkpoint, notes)


# The recorder of this process: a full session on the first rank, a smaller one on the others.
Start: TypeAlias = RunSession | WorkerSession


def start(setup: Setup) -> Start:
    """Return the recorder session of this rank, or that of a drill if the environment asks for one."""
    if DRILL_ENVIRONMENT_VARIABLE in os.environ and (settings := settings_from_environment()):
        from ckaudit.recorder.drill.session import drill_session

        return drill_session(settings, setup)
    return begin(setup, RunSession, WorkerSession)


def begin(setup: Setup, of_first: Callable[..., RunSession], of_others: Callable[..., WorkerSession]) -> Start:
    """Return the recorder session of this rank, made by `of_first` or `of_others`."""
    rank, world_size = rank_and_world_size()
    shards = Shards(setup.model, setup.guard) if any(map(is_sharded, setup.model.parameters())) else None
    hooked = setup.model if setup.is_hookable else None
    # Other ranks write no log lines.
    exchange = ExchangeWait(hooked, setup.guard) if hooked and world_size > 1 and not rank and shards is None else None
    clock = StepClock(hooked, alone=world_size == 1, waits_in_forward=shards is not None, exchange=exchange)
    try:
        if rank:
            return of_others(setup, rank=rank, clock=clock, shards=shards)
        return of_first(setup, world_size=world_size, clock=clock, shards=shards)
    except Exception:
        if shards is not None:
            shards.refuse()
        raise


def rank_and_world_size() -> tuple[int, int]:
    """Return this process's rank and the number of ranks."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()
