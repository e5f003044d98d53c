"""On-demand measurements that are pending: kept until a line or a checkpoint takes their results."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from msgspec import UNSET
from msgspec.structs import replace
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from ckaudit.contract.schema.checkpoint import Checkpoint, Parity, ProbeStats
from ckaudit.contract.schema.manifest import TensorFacts
from ckaudit.recorder.batch_facts import inputs_and_targets, row_fingerprints
from ckaudit.recorder.checks.curvature import Curvature, trace_of
from ckaudit.recorder.checks.fixed_batch import FixedBatch
from ckaudit.recorder.checks.gradient_check import GradientCheck, check_gradients
from ckaudit.recorder.checks.noise_scale import NoiseParts, NoiseScale, RankNoise
from ckaudit.recorder.checks.side_effect_free import LossOf
from ckaudit.recorder.files.run_folder import RunFolderWriter
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.hooks.autograd_trace import GradientNode, PathTrace, operator_of
from ckaudit.recorder.loop.step_state import StepState
from ckaudit.recorder.model.collector import Collector
from ckaudit.recorder.model.tensor_table import needs_other_ranks
from ckaudit.recorder.stats.arrays import dtype_name, is_sharded
from ckaudit.recorder.stats.float32_rounding import shorten, shortest
from ckaudit.recorder.target_alignment import TOKEN_TYPES

FIRST = "pinned"  # the pinned batch whose values stand in the line without a label

NAME = "held_out_rows_trained_on"

MAX_ROWS = 2**16  # rows that are remembered of either kind

MIN_ALIKE = 2
"""Different rows, each twice in one batch, that tell of rows which come again by nature: one may be a slip of the data."""

MIN_ROW_TOKENS = 24  # tokens of a row, padding aside: shorter ones come again by chance. Lee et al. (2022) count from 50 on

# Operators of ATen that move no element.
FREE = frozenset(
    f"aten::{name}"
    for name in """
    t transpose permute view _unsafe_view reshape _reshape_alias as_strided expand expand_as select slice split narrow unsqueeze
    squeeze detach alias resolve_conj resolve_neg empty empty_like empty_strided new_empty lift_fresh numpy_T
    """.split()  # noqa: SIM905  one word a line would take five times the room
)


class KernelWatch:
    """Profiles what runs between its making and `stop`: one forward and backward pass.

    PyTorch numbers the operators of a forward pass, and a node of the backward graph carries the number of its operator:
    so what ran for one tensor is known exactly, and not by name or shape. A CPU's kernels have no names; there the operators
    of ATen that did the work stand for them.

    Args:
        model: The model.
        hookable: Whether it may be hooked; without, nothing is found.

    Raises:
        RuntimeError: If something else is being profiled: there is one profiler, and it would lose what it saw.
    """

    def __init__(self, model: nn.Module, *, hookable: bool) -> None:
        if torch._C._autograd._profiler_enabled():  # noqa: SLF001  there is no public name
            raise RuntimeError("another profile is being taken")
        on_device = [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
        self._profiler = profile(activities=[ProfilerActivity.CPU, *on_device])
        self._profiler.start()
        self._paths = PathTrace(model, hookable=hookable, names=())

    def stop(self, table: Mapping[str, TensorFacts]) -> dict[str, TensorFacts]:
        """Stop, and return the table of tensors with the kernels of each that was seen."""
        self._paths.close()
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
        self._profiler.stop()
        numbered: dict[int, list[Any]] = {}
        for event in self._profiler.events() or ():  # type: ignore[no-untyped-call]
            numbered.setdefault(event.sequence_nr, []).append(event)
        kernels = {name: kernels_for(self._paths.readers_of(name), numbered) for name in table}
        return {name: replace(facts, kernels=kernels[name]) if kernels[name] else facts for name, facts in table.items()}


class HeldOutCheck:
    """Rows that are held out of the training, and those of them that a batch of the training contained.

    Rows are equal where all their elements are, padding included. Two that differ have the same hash once in 2^63.

    Where there are few different rows, as in a table of categories, two sets share some by chance. Rows of one batch are then
    equal as often as a row of the batch and a held-out row, because all are drawn alike; a leak raises only the latter.

    Args:
        max_rows: Rows that are remembered of either kind; later ones are not.
    """

    def __init__(self, *, max_rows: int = MAX_ROWS) -> None:
        self._max_rows = max_rows
        self._held_out_rows, self._shared, self._repeated = set[int](), set[int](), set[int]()
        self._trained = Counter[int]()
        self._pairs = 0
        self._is_declared = False

    def add_batch(self, batch: Any) -> None:
        """Add the rows of a batch to those held out."""
        rows = [*rows_of(batch)]
        self._compare_within(rows)
        self.add_rows({*rows}, is_declared=True)

    def add_rows(self, rows: set[int], *, is_declared: bool = False) -> None:
        """Add rows to those held out, as hashes of `rows_of`: declared by the user, or seen in a trainer's evaluation."""
        self._is_declared |= is_declared
        if len(self._held_out_rows) < self._max_rows:
            self._held_out_rows |= rows
            self._shared |= rows & self._trained.keys()

    def overlap(self, batch: Any) -> dict[str, float]:
        """Return the share of the held-out rows that training batches contained so far; empty where nothing can be compared."""
        if not self._held_out_rows or not (rows := [*rows_of(batch)]):
            return {}
        self._compare_within(rows)
        if len(self._trained) < self._max_rows:
            self._trained.update(rows)
        self._shared |= self._held_out_rows.intersection(rows)
        is_all_evaluated_on = not self._is_declared and self._trained.keys() <= self._held_out_rows  # as the trainer was asked to
        if is_all_evaluated_on or self._is_shared_by_chance():
            return {}
        return {NAME: shorten(100 * len(self._shared) / len(self._held_out_rows))}

    def _compare_within(self, rows: Sequence[int]) -> None:
        self._repeated |= {row for row, times in Counter(rows).items() if times > 1}
        self._pairs += len(rows) * (len(rows) - 1) // 2

    def _is_shared_by_chance(self) -> bool:
        """Tell whether rows equal each other within a batch at least half as often, pair by pair, as they equal held-out rows."""
        shared = sum(self._trained[row] for row in self._shared - self._repeated)
        across = len(self._held_out_rows - self._repeated) * self._trained.total()
        return (
            bool(self._shared) and len(self._repeated) >= MIN_ALIKE and 2 * len(self._repeated) * across >= self._pairs * shared
        )


class Requests:
    """Pinned batches, and results that wait for a checkpoint.

    Attributes:
        held_out: The rows that training should not see.

    Args:
        model: The model.
        collector: Knows where gradients are kept.
        folder: Where `run.json` is.
        guard: Keeps one that fails away from the others.
        hookable: Whether the model may be hooked.
        world_size: How many ranks train together.
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
        """Show a batch to the model at every checkpoint from now on, and return the values of its first showing.

        Raises:
            TypeError: If the model's parameters are spread over ranks.
        """
        self._refuse_spread()
        pinned = FixedBatch(batch, loss, shift=shift, held_out=held_out, hookable=self._hookable)
        values = _labelled(pinned.read(self._model, name).scalars, name)
        self._pinned[name] = pinned
        if held_out:
            self.held_out.add_batch(batch)
        return values

    def check_gradients(self, batch: Any, loss: LossOf, *, per_tensor: int) -> GradientCheck:
        """Compare gradients with central differences; the next checkpoint says where they are furthest apart.

        Raises:
            TypeError: If the model's parameters are spread over ranks.
        """
        self._refuse_spread()
        check = check_gradients(self._model, batch, loss, per_tensor=per_tensor)
        self._parity = Parity(gradient_error=shortest(check.worst_error), gradient_worst_tensor=check.worst_tensor or UNSET)
        return check

    def micro_batch(self, examples: float) -> None:
        """Look at the gradients as one more micro-batch of so many examples left them.

        Raises:
            TypeError: If ranks hold parts of them.
        """
        gradients, scale = self._collector.scaled_gradients()
        if any(map(is_sharded, gradients.values())):
            raise TypeError("each rank has only a part of the gradients")
        self._noise.add(gradients, examples, scale=scale)

    def rank_batch(self, examples: float) -> None:
        """Compare this rank's gradient, of so many examples, with the mean over ranks, in the step under way.

        Raises:
            RuntimeError: If there is only one rank.
            TypeError: If ranks hold parts of the gradients.
        """
        self._refuse_spread()
        if self._world_size < 2:
            raise RuntimeError("there is only one rank")
        seen = RankNoise(self._collector.weights.values(), self._guard) if self._ranks is None else self._ranks[0]
        seen.watch()
        self._ranks = seen, examples

    def profile(self) -> None:
        """Profile from now on until the step under way is finished."""
        if self._watch is None:
            self._watch = KernelWatch(self._model, hookable=self._hookable)

    @property
    def is_idle(self) -> bool:
        """Whether nothing was asked for that the end of a step has to deliver."""
        return self._watch is None and self._ranks is None and not self._noise.sizes

    def finish_step(self, attempt: StepState, batch: Any = None) -> None:
        """Write down what a profile saw, and put what micro-batches and held-out rows say into the step's values.

        A value that was logged stays.

        Args:
            attempt: The step.
            batch: Its batch, of which the rows are compared with those held out where the step is looked at.
        """
        if attempt.is_watched:
            with self._guard("looking for held-out rows"):
                attempt.note(self.held_out.overlap(batch))
        if self._watch is not None:
            watch, self._watch = self._watch, None
            with self._guard("profiling a step"):
                self._folder.describe(tensors=watch.stop(self._folder.tensors))
        if self._noise.sizes:
            with self._guard("the gradient noise scale"):
                _note_noise_scale(self._noise.estimate(), attempt)
        if self._ranks is not None:
            self._compare_ranks(attempt, *self._ranks)

    def _compare_ranks(self, attempt: StepState, seen: RankNoise, examples: float) -> None:
        with self._guard("the gradient noise scale"):
            scaled = 1.0 if attempt.loss_scale is None else attempt.loss_scale**2
            if (pair := seen.take()) is not None:
                big = examples * self._world_size
                _note_noise_scale(self._noise.compare(pair.own / scaled, pair.mean / scaled, small=examples, big=big), attempt)

    def measure_curvature(self, loss: Tensor | Callable[[], Tensor], *, samples: int, seed: int) -> Curvature:
        """Return the trace of the Hessian by all trainable parameters.

        Raises:
            TypeError: If the model's parameters are spread over ranks.
        """
        self._refuse_spread()
        trainable = [parameter for parameter in self._model.parameters() if parameter.requires_grad]
        return trace_of(self._model, loss, trainable, samples=samples, seed=seed)

    def _refuse_spread(self) -> None:
        if needs_other_ranks(self._model):
            raise TypeError("one rank alone cannot run a model that is spread over all")

    def fill(self, checkpoint: Checkpoint, attempt: StepState) -> None:
        """Put what was asked for into a checkpoint, and its numbers into the values of the step; a logged one stays."""
        probes: dict[str, ProbeStats] = {}
        for name, batch in self._pinned.items():
            with self._guard(f"the pinned batch {name}"):
                reading = batch.read(self._model, name)
                probes |= reading.probes
                attempt.values = _labelled(reading.scalars, name) | attempt.values
        checkpoint.probes = probes or UNSET
        if self._parity is not None:
            checkpoint.parity, self._parity = self._parity, None


def _labelled(scalars: dict[str, float], name: str) -> dict[str, float]:
    return scalars if name == FIRST else {f"{scalar}/{name}": value for scalar, value in scalars.items()}


def _note_noise_scale(noise: NoiseParts | None, attempt: StepState) -> None:
    """Put the noise scale and its parts into the values of a step, unless the trainer logged a scale of its own."""
    if noise is not None and "grad_noise_scale" not in attempt.values:
        attempt.values = noise.values() | attempt.values


# Whether rows that are held out are trained on: hashes of whole rows, compared at the steps that are looked at.
def rows_of(batch: Any) -> list[int]:
    """Return hashes of the input rows of a batch that are long enough to be distinguished; none where the inputs have no rows."""
    inputs = inputs_and_targets(batch)[0]
    if inputs is None or len(inputs.shape) < 2 or 0 in inputs.shape:
        return []
    hashes = row_fingerprints(inputs)
    if dtype_name(inputs) not in TOKEN_TYPES:
        return list(hashes.tolist())
    tokens = inputs.reshape(len(inputs), -1)
    # Padding stands on one side or the other.
    is_long = [(tokens != pad).sum(1) >= MIN_ROW_TOKENS for pad in (tokens[:, :1], tokens[:, -1:])]
    return list(hashes[is_long[0] & is_long[1]].tolist())


# The kernels that ran for each parameter in one profiled step.
def kernels_for(readers: Iterable[GradientNode], numbered: Mapping[int, list[Any]]) -> list[str]:
    """Return the kernels of a tensor's operators, forward before backward, each once.

    Args:
        readers: Nodes of the backward graph that fill the tensor's gradient.
        numbered: Events of the profiler by sequence number.
    """
    kernels: dict[str, None] = {}
    for reader in readers:
        events = numbered.get(reader.number, [])
        operator = operator_of(reader.node)
        forward = [event for event in events if event.name.removeprefix("aten::").lstrip("_") == operator]
        backward = [event for event in events if event.name == reader.node]
        for event in (*forward, *backward):
            inside = [*_with_descendants(event)]
            on_device = [kernel.name for inner in inside for kernel in inner.kernels]
            working = [inner.name for inner in inside if inner.name.startswith("aten::") and inner.name not in FREE]
            kernels |= dict.fromkeys(on_device or working)
    return list(kernels)


def _with_descendants(event: Any) -> Iterator[Any]:
    """Yield an event and everything inside it."""
    yield event
    for child in event.cpu_children:
        yield from _with_descendants(child)
