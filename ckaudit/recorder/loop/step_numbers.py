"""The numbers of a step: those in CPU memory are read at once, those on an accelerator are copied and read a step later.

A training step evicts the recorder's code from the CPU caches, so every function call costs some microseconds. Most steps are
plain: nothing is due or requested, and all numbers are finite and in CPU memory. They go through one function. Other steps take
the slow path; both write the same.
"""

from collections.abc import Mapping, Sequence
from math import hypot, isfinite
from time import perf_counter
from typing import Any, TypeGuard

import torch
from msgspec import Struct
from msgspec.structs import replace
from torch import Tensor, nn

from ckaudit.contract.schema.checkpoint import GradientsSource
from ckaudit.recorder.batch_facts import BatchesSeen, fingerprint, inputs_and_targets, name_of, name_of_tokens
from ckaudit.recorder.files.run_folder import RunFolderWriter
from ckaudit.recorder.files.scalar_log import number
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.loop.step_state import StepState
from ckaudit.recorder.loop.triggers import CheckpointSchedule, HistoryStep
from ckaudit.recorder.model.gradient_norms import FULL_TYPES, LONG_ELEMENTS, Norms, are_on_cpu, common_dtype_and_size
from ckaudit.recorder.stats.arrays import Array, is_on_accelerator, is_sharded, pack_bytes, ravel, unpack_bytes
from ckaudit.recorder.stats.float32_rounding import round_to_seven_digits, shorten


class PlainGradients:
    """The fast path for a plain step's gradient norms: all gradients in `.grad`, of one full-precision dtype, none too long."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self._names, self._parameters = [*parameters], [*parameters.values()]
        self._dtype, longest = common_dtype_and_size(self._parameters)
        self.is_usable = self._dtype in FULL_TYPES and longest <= LONG_ELEMENTS and are_on_cpu(self._parameters)

    def read(self, step_state: StepState, source: GradientsSource) -> bool:
        """Take the norm of every gradient, and tell whether that worked; if not, nothing has changed.

        Args:
            step_state: The current step.
            source: Point in the step at which gradients are read.
        """
        start = perf_counter()
        gradients = [parameter.grad for parameter in self._parameters if parameter.requires_grad]
        if len(gradients) < len(self._names):
            return False
        try:
            norms = torch._foreach_norm(gradients, 2)  # type: ignore[arg-type]  # noqa: SLF001
        except (NotImplementedError, RuntimeError, TypeError):  # sparse, on several devices, or one is missing
            return False
        if norms[0].dtype != self._dtype or not norms[0].is_cpu:
            return False
        by_name = dict(zip(self._names, [norm.item() for norm in norms], strict=True))
        step_state.source, step_state.unread = source, PendingStats(self._names, at_hand=by_name)
        step_state.seconds += perf_counter() - start
        return True


def finish_plain(
    step_state: StepState,
    loss: Any,
    batch: Any,
    batch_id: str | int | None,
    folder: RunFolderWriter,
    schedule: CheckpointSchedule,
    guard: Guard,
) -> bool:
    """Write and remember the log line of a step if it is plain; tell whether it was. If not, nothing has changed.

    Args:
        step_state: The step, with no checkpoint and no vital signs, of a training without a loss scaler.
        loss: Loss as the training gave it.
        batch: Its batch.
        batch_id: The loader's name for the batch.
        folder: Writes the line.
        schedule: Keeps the step, unless it is an event.
        guard: Isolates a failing disk from the rest.
    """
    unread = step_state.unread
    if unread is None or unread.at_hand is None or not step_state.rates or not step_state.updates:
        return False
    inputs = batch[0] if type(batch) is tuple and batch else inputs_and_targets(batch)[0]
    if unread.scale != 1.0 or not _is_number(loss) or not (inputs is None or _are_tokens(inputs)):
        return False
    norms, numbers = unread.at_hand, unread.at_hand.values()
    value, norm = loss.item(), hypot(*numbers)
    if not (isfinite(norm) and isfinite(value)):
        return False
    value, norm = shorten(value), round_to_seven_digits(norm)
    name = None if inputs is None else name_of_tokens(inputs)
    if not schedule.accept_if_uneventful(
        HistoryStep(step_state.step, value, step_state.rates[0], name, norms), norm, min(numbers)
    ):
        return False
    # No failure after this point undoes the step.
    step_state.loss, step_state.global_norm, step_state.norms = value, norm, norms
    step_state.input_hash, step_state.unread = name, None
    step_state.is_batch_reused = folder.batches.is_reused(inputs)
    step_state.values = _known(step_state, batch_id, folder) | step_state.values
    try:
        folder.append(step_state.step, step_state.time, step_state.values)
    except Exception as error:  # noqa: BLE001  a disk may fail in any way
        guard.failed("writing scalars.jsonl", error, writes=True)
    return True


def _known(step_state: StepState, batch_id: str | int | None, folder: RunFolderWriter) -> dict[str, Any]:
    values: dict[str, Any] = {"train_loss_raw": step_state.loss, "grad_global_norm": step_state.global_norm}
    if step_state.input_hash is not None:
        values["batch_hash"] = step_state.input_hash
        if (ago := folder.batches.observe(step_state.step, step_state.input_hash)) is not None:
            values["batch_repeat_distance"] = ago
            if ago == 1 and step_state.is_batch_reused:
                values["batch_reused"] = 1
    folder.steps_seen += 1
    values["learning_rate"], values["steps_seen"] = step_state.rates[0], folder.steps_seen
    if batch_id is not None:
        values["batch_id"] = batch_id
    return values


def _is_number(loss: Any) -> bool:
    return type(loss) is Tensor and loss.dtype == torch.float32 and loss.is_cpu and loss.numel() == 1


def _are_tokens(inputs: Any) -> bool:
    return type(inputs) is Tensor and inputs.dtype == torch.int64 and inputs.is_cpu and inputs.layout == torch.strided


# Measurements of a step that are still on the device. Small numbers are copied from the accelerator in one transfer, and read
# when they are needed.
class AsyncCopy:
    """An asynchronous copy of a few small tensors to CPU memory.

    Reading a number from an accelerator at once would make the program wait until all queued work is done. An AsyncCopy queues
    one copy into pinned memory behind that work. Opened a step later, it has usually arrived.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        """Start copying all elements of `tensors`, each of any dtype and shape, on any device."""
        self._tensors = [ravel(tensor) for tensor in tensors]
        self._bytes = pack_bytes(self._tensors).to("cpu", non_blocking=True)
        home = self._tensors[0].device.type
        self._arrived = None if home == "cpu" else torch.Event(home)
        if self._arrived is not None:
            self._arrived.record()

    def open(self) -> list[Tensor]:
        """Return the elements of each tensor, flat and in CPU memory; wait if they have not arrived."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return [torch.from_numpy(elements) for elements in unpack_bytes(self._bytes, self._tensors)]


class PendingStats(Struct):
    """Norms, loss and batch of one step.

    On an accelerator the copy starts when the step is finished, and is read one step later, so nothing waits for it.

    Attributes:
        names: Tensors whose gradients have norms.
        norms: Their norms on the device; None: there are none, or all are in `at_hand`.
        at_hand: Norms by name, if nothing has to be fetched: the names are still in the CPU cache when the norms are taken.
        scale: Factor that the gradients contain: loss scale and clipping.
        loss: Loss as the training gave it.
        batch: Fingerprint of the inputs; None without inputs.
        shape: Shape of the inputs.
    """

    names: Sequence[str] = ()
    norms: Norms | None = None
    at_hand: dict[str, float] | None = None
    scale: float = 1.0
    loss: Any = None
    batch: Any = None
    shape: tuple[int, ...] = ()
    _copy: AsyncCopy | None = None

    def take_batch(self, batch: Any) -> Array | None:
        """Take the fingerprint of a batch, and return its inputs."""
        inputs = inputs_and_targets(batch)[0]
        if inputs is not None:
            self.batch, self.shape = fingerprint(inputs), tuple(inputs.shape)
        return inputs

    def send(self) -> bool:
        """Start copying what is on an accelerator, and tell whether there is anything."""
        pieces = None if self.norms is None else self.norms.pieces
        away = [tensor for tensor in (pieces, self.loss, self.batch) if _is_on_accelerator(tensor)]
        self._copy = AsyncCopy(away) if away else None
        return bool(away)

    def arrive(self) -> None:
        """Store the copied numbers in their attributes."""
        if self._copy is None:
            return
        arrays = iter(self._copy.open())
        if self.norms is not None and _is_on_accelerator(self.norms.pieces):
            self.norms = replace(self.norms, pieces=next(arrays))
        if _is_on_accelerator(self.loss):
            self.loss = next(arrays)
        if _is_on_accelerator(self.batch):
            self.batch = next(arrays)

    def norms_of(self) -> dict[str, float]:
        """Return the norm of every gradient, without `scale`."""
        norms = self.at_hand
        if norms is None:
            norms = {} if self.norms is None else dict(zip(self.names, self.norms.numbers(), strict=True))
        return norms if self.scale == 1.0 else {name: norm / self.scale for name, norm in norms.items()}

    def loss_of(self) -> float | None:
        """Return the loss.

        Raises:
            TypeError: If it is no scalar.
            ValueError: If it is a string that is no number, or is sharded over ranks.
        """
        loss = self.loss
        is_plain = type(loss) is Tensor and loss.dtype == torch.float32 and loss.numel() == 1
        return shorten(loss.item()) if is_plain else number(loss)

    def hash_of(self) -> str | None:
        """Return the hash of the batch."""
        if self.batch is None:
            return None
        return name_of(int(self.batch.item()) if isinstance(self.batch, Tensor) else self.batch, self.shape)


def fetch(step_state: StepState, guard: Guard, batches: BatchesSeen) -> None:
    """Put the measurements of a step that have arrived into its log line; what fails is not recorded."""
    unread, step_state.unread = step_state.unread or PendingStats(), None
    with guard("reading gradients"):
        step_state.take(unread.norms_of())
    with guard("reading the loss"):
        step_state.loss = unread.loss_of()
    with guard("looking at the batch"):
        step_state.input_hash = unread.hash_of()
    step_state.note_read(batches.observe(step_state.step, step_state.input_hash))


def _is_on_accelerator(value: Any) -> TypeGuard[Tensor]:
    # An AsyncCopy of a sharded tensor would bring this rank's shard only; reading it directly raises.
    return isinstance(value, Tensor) and not is_sharded(value) and is_on_accelerator(value)
