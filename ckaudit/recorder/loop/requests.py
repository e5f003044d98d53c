"""Pending on-demand measurements, kept until a log line or a checkpoint takes their results."""

from collections.abc import Callable
from typing import Any

from msgspec import UNSET
from torch import Tensor, nn

from ckaudit.contract.schema.checkpoint import Checkpoint, Parity, ProbeStats
from ckaudit.recorder.checks.curvature import Curvature, trace_of
from ckaudit.recorder.checks.fixed_batch import FixedBatch
from ckaudit.recorder.checks.gradient_check import GradientCheck, check_gradients
from ckaudit.recorder.checks.held_out_rows import HeldOutCheck
from ckaudit.recorder.checks.noise_scale import NoiseParts, NoiseScale, RankNoise
from ckaudit.recorder.checks.side_effect_free import LossOf
from ckaudit.recorder.files.run_folder import RunFolderWriter
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.hooks.kernel_profiler import KernelWatch
from ckaudit.recorder.loop.step_state import StepState
from ckaudit.recorder.model.collector import Collector
from ckaudit.recorder.model.tensor_table import needs_other_ranks
from ckaudit.recorder.stats.arrays import is_sharded
from ckaudit.recorder.stats.float32_rounding import shortest

FIRST = "pinned"  # the pinned batch whose values have no label


class Requests:
    """Pinned batches, and results that are pending until a checkpoint.

    Attributes:
        held_out: The rows that training should not see.

    Args:
        model: The model.
        collector: Gives access to the gradients.
        folder: Writes `run.json`.
        guard: Isolates a failing measurement from the others.
        hookable: Whether the model may be hooked.
        world_size: Number of ranks.
    """

    def __init__(
        self, model: nn.Module, collector: Collector, folder: RunFolderWriter, guard: Guard, *, hookable: bool, world_size: int
    ) -> None:
        self._world_size = world_size
        self._model, self._collector, self._folder, self._guard, self._hookable = model, collector, folder, guard, hookable
        self._pinned: dict[str, FixedBatch] = {}
        self._parity: Parity | None = None
        self._noise = NoiseScale()
        self._ranks: tuple[RankNoise, float] | None = None
        self._watch: KernelWatch | None = None
        self.held_out = HeldOutCheck()

    def pin(self, name: str, batch: Any, loss: LossOf, *, shift: int, held_out: bool | None) -> dict[str, float]:
        """Evaluate the model on a batch now and at every checkpoint, and return the current values.

        Raises:
            TypeError: If the model's parameters are sharded over ranks.
        """
        self._refuse_spread()
        pinned = FixedBatch(batch, loss, shift=shift, held_out=held_out, hookable=self._hookable)
        values = _labelled(pinned.read(self._model, name).scalars, name)
        self._pinned[name] = pinned
        if held_out:
            self.held_out.add_batch(batch)
        return values

    def check_gradients(self, batch: Any, loss: LossOf, *, per_tensor: int) -> GradientCheck:
        """Compare gradients with central differences; the next checkpoint contains the largest error.

        Raises:
            TypeError: If the model's parameters are sharded over ranks.
        """
        self._refuse_spread()
        check = check_gradients(self._model, batch, loss, per_tensor=per_tensor)
        self._parity = Parity(gradient_error=shortest(check.worst_error), gradient_worst_tensor=check.worst_tensor or UNSET)
        return check

    def micro_batch(self, examples: float) -> None:
        """Read the gradients after one more micro-batch of `examples` examples.

        Raises:
            TypeError: If the gradients are sharded over ranks.
        """
        gradients, scale = self._collector.scaled_gradients()
        if any(map(is_sharded, gradients.values())):
            raise TypeError("each rank has only a part of the gradients")
        self._noise.add(gradients, examples, scale=scale)

    def rank_batch(self, examples: float) -> None:
        """Compare this rank's gradient, of `examples` examples, with the mean over ranks in the current step.

        Raises:
            RuntimeError: If there is only one rank.
            TypeError: If the gradients are sharded over ranks.
        """
        self._refuse_spread()
        if self._world_size < 2:
            raise RuntimeError("there is only one rank")
        seen = RankNoise(self._collector.weights.values(), self._guard) if self._ranks is None else self._ranks[0]
        seen.watch()
        self._ranks = seen, examples

    def profile(self) -> None:
        """Profile until the current step is finished."""
        if self._watch is None:
            self._watch = KernelWatch(self._model, hookable=self._hookable)

    @property
    def is_idle(self) -> bool:
        """Whether no request needs the end of a step."""
        return self._watch is None and self._ranks is None and not self._noise.sizes

    def finish_step(self, step_state: StepState, batch: Any = None) -> None:
        """Note the results of a profile, and add the values of micro-batches and held-out rows to the step.

        Logged values take precedence.

        Args:
            step_state: The step.
            batch: Its batch, whose rows are compared with the held-out ones if the step is inspected.
        """
        if step_state.is_watched:
            with self._guard("looking for held-out rows"):
                step_state.note(self.held_out.overlap(batch))
        if self._watch is not None:
            watch, self._watch = self._watch, None
            with self._guard("profiling a step"):
                self._folder.describe(tensors=watch.stop(self._folder.tensors))
        if self._noise.sizes:
            with self._guard("the gradient noise scale"):
                _note_noise_scale(self._noise.estimate(), step_state)
        if self._ranks is not None:
            self._compare_ranks(step_state, *self._ranks)

    def _compare_ranks(self, step_state: StepState, seen: RankNoise, examples: float) -> None:
        with self._guard("the gradient noise scale"):
            scaled = 1.0 if step_state.loss_scale is None else step_state.loss_scale**2
            if (pair := seen.take()) is not None:
                big = examples * self._world_size
                _note_noise_scale(self._noise.compare(pair.own / scaled, pair.mean / scaled, small=examples, big=big), step_state)

    def measure_curvature(self, loss: Tensor | Callable[[], Tensor], *, samples: int, seed: int) -> Curvature:
        """Return the trace of the Hessian with respect to all trainable parameters.

        Raises:
            TypeError: If the model's parameters are sharded over ranks.
        """
        self._refuse_spread()
        trainable = [parameter for parameter in self._model.parameters() if parameter.requires_grad]
        return trace_of(self._model, loss, trainable, samples=samples, seed=seed)

    def _refuse_spread(self) -> None:
        if needs_other_ranks(self._model):
            raise TypeError("one rank alone cannot run a model that is spread over all")

    def fill(self, checkpoint: Checkpoint, step_state: StepState) -> None:
        """Add the requested results to a checkpoint, and their numbers to the values of the step; logged values stay."""
        probes: dict[str, ProbeStats] = {}
        for name, batch in self._pinned.items():
            with self._guard(f"the pinned batch {name}"):
                reading = batch.read(self._model, name)
                probes |= reading.probes
                step_state.values = _labelled(reading.scalars, name) | step_state.values
        checkpoint.probes = probes or UNSET
        if self._parity is not None:
            checkpoint.parity, self._parity = self._parity, None


def _labelled(scalars: dict[str, float], name: str) -> dict[str, float]:
    return scalars if name == FIRST else {f"{scalar}/{name}": value for scalar, value in scalars.items()}


def _note_noise_scale(noise: NoiseParts | None, step_state: StepState) -> None:
    """Add the noise scale and its parts to the values of a step, unless the trainer logged a noise scale."""
    if noise is not None and "grad_noise_scale" not in step_state.values:
        step_state.values = noise.values() | step_state.values
