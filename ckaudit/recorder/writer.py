"""The writer: a run folder from NumPy arrays, for JAX and any other framework; it never imports torch."""

import atexit
import math
import os
from collections import deque
from collections.abc import Mapping, Sequence
from statistics import median
from time import perf_counter, time
from typing import Any, Self

from msgspec import UNSET

from ckaudit import __version__
from ckaudit.contract.cadence import DEFAULT_CADENCE
from ckaudit.contract.io.grids import GridEncoding
from ckaudit.contract.schema.checkpoint import Checkpoint, Cost, GradientsSource
from ckaudit.contract.schema.manifest import Cadence, Triggers
from ckaudit.recorder.batch_facts import batch_facts, batch_hash
from ckaudit.recorder.files.manifest import check_call
from ckaudit.recorder.files.run_folder import RunFolderWriter
from ckaudit.recorder.files.scalar_log import accepted_values, number
from ckaudit.recorder.files.sections import (
    Arrays,
    GivenArrays,
    Held,
    SectionOptions,
    SectionWriter,
    array_measurements,
    attention_measurements,
    given_facts,
    tensor_table,
)
from ckaudit.recorder.files.uploader import close_at_exit
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.loop.overhead_meter import share_of_step
from ckaudit.recorder.loop.step_state import StepState
from ckaudit.recorder.loop.triggers import CheckpointSchedule, EventThresholds, HistoryStep
from ckaudit.recorder.model.budget_planner import BudgetPlanner
from ckaudit.remote.spool import address_of, folder_of


class Writer:
    """Writes a run folder for a training in any framework, from arrays that NumPy can read.

    A training loop with the writer's calls::

        writer = Writer("run/", vocabulary=50_000, sequence_length=1_024, clip_norm=1.0)
        writer.checkpoint(0, weights=weights)                          # the weights that training starts from
        for step, batch in enumerate(loader, 1):
            due = writer.is_due(step)                                  # before the update, to keep what it replaces
            loss, gradients, updated = train_step(weights, batch)
            writer.step(step, loss=loss, learning_rate=rate, batch=batch, grad_global_norm=norm)
            if due:
                writer.checkpoint(step, weights=updated, gradients=gradients, previous=weights,
                                  activations={...}, attention={"layer.0": probabilities})
            weights = updated
        writer.close()                                                 # or `with Writer(...) as writer:`

    Statistics, cadence, resuming and events are those of `Recorder`, from the same code. Events are detected in the losses and
    the `grad_global_norm` of the log lines. Arrays are given by name. The first integer between dots is the depth of the block,
    as in "blocks.3.attention.q", unless `tensors` says otherwise. Of several processes only one should write. No method raises. A
    failure is logged once by the logger `ckaudit.recorder`, counted in `run.json`, and its data is missing in the files.

    Args:
        folder: The run folder, created if missing. A session is added to an existing run. Or an address, such as
            "s3://bucket/run", as for `Recorder`.
        tensors: Facts of tensors by name, such as {"kind": "attention", "depth": 3, "tied_to": "embedding"}; other facts follow
            from name and array.
        start_step: Update attempts finished before a resume.
        cadence: When checkpoints are due.
        limits: When an event triggers a checkpoint, and how many may.
        causal: Whether a query must not see later keys. Default: true if later keys have exactly zero weight.
        hidden: Glob patterns of the activations whose last dimension is hidden units, which can be dead.
        grids: How sampled matrices are written: "q8" bytes, "nested" numbers, or "none". Layers take turns.
        budget_kb: Maximum size of a checkpoint, as in `Recorder`; None: write everything, every time.
        spectral_norms: Glob patterns of the weights whose largest singular value is measured.
        exact: Whether each tensor carries a hash of its bytes.
        suffix: ".json", ".json.gz" or ".json.zst". Default: ".json", or ".json.zst" if plain files with all statistics would
            exceed the budget.
        **facts: Further facts of `run.json`, such as name, config, seed, planned_steps, planned_learning_rate, commit.

    Raises:
        TypeError: If a keyword is not a fact of `run.json`.
        ValueError: If `grids` or `suffix` is not one of its values.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        /,
        *,
        tensors: Mapping[str, Mapping[str, Any]] | None = None,
        start_step: int = 0,
        cadence: Sequence[Cadence] = DEFAULT_CADENCE,
        limits: EventThresholds = EventThresholds(),  # noqa: B008  it is frozen
        causal: bool | None = None,
        hidden: Sequence[str] = ("*act*", "*relu*", "*gelu*", "*silu*"),
        grids: GridEncoding = "q8",
        budget_kb: float | None = 200,
        spectral_norms: Sequence[str] = (),
        exact: bool = False,
        suffix: str | None = None,
        **facts: Any,
    ) -> None:
        check_call(grids=grids, suffix=suffix, **facts)
        self._guard, self._process, self._facts, self._cadence = Guard(), os.getpid(), facts, tuple(cadence)
        path, address = folder_of(folder), address_of(folder)
        self._folder = RunFolderWriter(path, self._guard, suffix=suffix or ".json", start_step=start_step, address=address)
        self._schedule = CheckpointSchedule(self._cadence, limits, facts.get("planned_steps"), start_step=start_step)
        self._durations: deque[float] = deque(maxlen=64)
        self._step_state = StepState(step=start_step)
        self._finished: tuple[StepState, Checkpoint | None] | None = None
        self._batch: dict[str, Any] = {}
        self._closed, self._described, self._packs_itself = False, False, suffix is None
        self._given = given_facts(tensors or {}, self._guard)
        self._sections = SectionWriter(
            self._guard,
            self._given,
            SectionOptions(causal=causal, hidden=tuple(hidden), spectral=tuple(spectral_norms), exact=exact),
            BudgetPlanner(grids=grids, budget_kb=budget_kb, suffix=suffix or ".json", cadence=self._cadence),
        )
        self._open(limits, start_step)
        self._ended = perf_counter()
        atexit.register(self.close)
        if address:
            close_at_exit(self.close)

    def _open(self, limits: EventThresholds, start_step: int) -> None:
        with self._guard("opening the folder", writes=True):
            self._folder.open(self._facts)
        if start_step:
            with self._guard("reading reference.npz"):
                self._folder.take_reference({})
        with self._guard("writing run.json", writes=True):
            self._folder.describe(
                source=f"ckaudit writer {__version__}",
                cadence=list(self._cadence),
                triggers=Triggers(loss_spike_factor=limits.loss_spike_factor, grad_norm_factor=limits.grad_norm_factor),
            )
        self._folder.wait_for_writes()

    def is_due(self, step: int) -> bool:
        """Return whether a checkpoint is due at `step`: by the cadence, as the last planned one, or after an event."""
        return self._schedule.is_due(step)

    def step(
        self,
        step: int,
        *,
        loss: Any = None,
        learning_rate: Any = None,
        batch: Any = None,
        batch_id: str | int | None = None,
        source: str | None = None,
        **scalars: Any,
    ) -> None:
        """Write the log line of a finished step; step numbers must increase.

        Args:
            step: Update attempts finished, this one included.
            loss: Training loss of the step.
            learning_rate: Learning rate of its update.
            batch: Inputs and targets as the loss saw them; hashed, and compared with each other if they are tokens.
            batch_id: The loader's name for the batch.
            source: The data source of the batch.
            **scalars: More values by catalogue name, such as grad_global_norm (before clipping), val_loss.
        """
        if self._closed:
            return
        with self._guard("finishing a step", writes=True):
            if step <= self._step_state.step:
                raise ValueError(f"step {step} comes after step {self._step_state.step}")
            self._durations.append(perf_counter() - self._ended - self._step_state.seconds)
            self._folder.steps_seen += step - self._step_state.step
            step_state = self._step_state = StepState(step=step, time=time())
            self._batch, self._finished = {"batch_id": batch_id, "source": source}, (step_state, None)
            self._take(step_state, loss, learning_rate, scalars)
            with self._guard("hashing the batch"):
                self._batch |= {"batch": batch, "input_hash": batch_hash(batch)}
            with self._guard("writing scalars.jsonl", writes=True):
                self._folder.append(step, step_state.time, step_state.values)
            self._look_back(step_state)
            self._ended = perf_counter()

    def _take(self, step_state: StepState, loss: Any, learning_rate: Any, scalars: Mapping[str, Any]) -> None:
        """Put the values of a step into its state; a value that is no scalar is left out and counted."""
        with self._guard("reading the loss"):
            step_state.loss = number(loss)
        seen = self._folder.steps_seen
        given = {"train_loss_raw": step_state.loss, "learning_rate": learning_rate, "steps_seen": seen, **scalars}
        step_state.values |= accepted_values({name: value for name, value in given.items() if value is not None}, self._guard)

    def _look_back(self, step_state: StepState) -> None:
        """Keep the step in the black box, and detect its events."""
        numbers: dict[str, float | None] = {}
        for name in ("grad_global_norm", "learning_rate"):
            with self._guard(f"reading {name}"):
                numbers[name] = number(step_state.values.get(name))
        history_step = HistoryStep(
            step_state.step, step_state.loss, numbers.get("learning_rate"), self._batch.get("input_hash"), {}
        )
        self._schedule.latest = []
        self._schedule.observe(history_step, numbers.get("grad_global_norm"), {})
        self._schedule.ask(step_state.step + 1)

    def checkpoint(
        self,
        step: int,
        *,
        weights: Arrays | None = None,
        gradients: Arrays | None = None,
        previous: Arrays | None = None,
        activations: Arrays | None = None,
        attention: Mapping[str, Any] | None = None,
        gradients_source: GradientsSource = "pre_clip",
    ) -> None:
        """Write the checkpoint of a step, after its `step`; the weights of step 0 are the reference for all movement.

        Args:
            step: Update attempts finished.
            weights: Weights after the update, by name.
            gradients: Gradients of the step, by the names of the weights.
            previous: Weights before the update.
            activations: Outputs of modules, by module name, shape (..., units).
            attention: Probabilities (B, H, Q, K) by layer name, or pairs of these and the scaled logits before softmax.
            gradients_source: Whether the gradients are those before or after clipping.
        """
        if self._closed:
            return
        start = perf_counter()
        with self._guard("building a checkpoint", writes=True):
            step_state = self._step_state if step == self._step_state.step else StepState(step=step)
            step_state.time = step_state.time or time()
            step_state.triggers = self._schedule.triggers(step)
            step_state.event_step = step - 1 if self._schedule.follows_event(step) else None
            step_state.source = gradients_source if gradients else None
            given = GivenArrays(
                weights=array_measurements(weights),
                gradients=array_measurements(gradients),
                previous=array_measurements(previous),
                activations=array_measurements(activations),
                attention=attention_measurements(attention),
            )
            if weights and not self._described:
                self._describe(given.weights)
            checkpoint = self._fill(step_state, given)
            checkpoint.cost = self._cost(perf_counter() - start)
            with self._guard("writing a checkpoint", writes=True):
                self._folder.write(checkpoint)
            if step == self._step_state.step:
                self._finished = step_state, checkpoint
            step_state.seconds += perf_counter() - start

    def _describe(self, weights: Held) -> None:
        """Write the tensor table into `run.json`, and at step 0 the reference."""
        self._described = True
        if self._packs_itself:
            self._folder.suffix = self._sections.choose_suffix(weights)
        tensors = tensor_table(weights, self._given)
        if not self._folder.is_resume:
            with self._guard("writing reference.npz", writes=True):
                self._folder.take_reference(weights)
        with self._guard("writing run.json", writes=True):
            shapes = [facts.shape for facts in tensors.values() if facts.trainable is not False and facts.tied_to is UNSET]
            parameters = sum(math.prod(shape) for shape in shapes if shape is not UNSET)
            self._folder.describe(tensors=tensors, parameters=parameters)

    def _fill(self, step_state: StepState, given: GivenArrays) -> Checkpoint:
        """Return the checkpoint of a step, and add the values that only the arrays have to its log line."""
        checkpoint = step_state.checkpoint(self._folder.session)
        checkpoint.model_scale_hint = self._facts.get("model_scale_hint", UNSET)
        reference = self._folder.reference if step_state.step else None
        derived = self._sections.fill(checkpoint, step_state, given, reference)
        known = {"grad_global_norm": step_state.global_norm, "update_to_weight": derived["update_to_weight"]}
        new = {name: value for name, value in known.items() if value is not None and name not in step_state.values}
        step_state.values |= new
        checkpoint.scalars = step_state.scalars(**derived) or UNSET
        if step_state.step and self._batch:
            with self._guard("data"):
                checkpoint.data = batch_facts(**self._batch, vocabulary=self._facts.get("vocabulary")) or UNSET
        if step_state.event_step is not None:
            checkpoint.history = self._schedule.history(before=step_state.step) or UNSET
        if step_state.step and new:
            with self._guard(
                "writing scalars.jsonl", writes=True
            ):  # a second line of one step and session is merged with the first
                self._folder.append(step_state.step, step_state.time, new)
        return checkpoint

    def _cost(self, seconds: float) -> Cost:
        typical = median(self._durations) if self._durations else 0.0
        ms = round(seconds * 1e3, 3)
        return Cost(ms=ms, step_share=share_of_step(ms, typical))

    def close(self) -> None:
        """Write the last step's checkpoint with the black box, and the end of the session; a second call does nothing."""
        atexit.unregister(self.close)
        if self._closed or os.getpid() != self._process:
            return
        self._closed = True
        if self._finished:
            with self._guard("the last checkpoint", writes=True):
                step_state, written = self._finished
                last = written or step_state.checkpoint(self._folder.session)
                last.scalars = step_state.scalars() if written is None else last.scalars
                self._folder.write(self._schedule.conclude(step_state, last))
        with self._guard("closing", writes=True):
            self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
