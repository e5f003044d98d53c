"""What was measured of a step where it was computed, and is not fetched yet."""

from collections.abc import Sequence
from typing import Any, TypeGuard

import torch
from msgspec import Struct
from msgspec.structs import replace
from torch import Tensor

from ckaudit.recorder.batches import BatchesSeen, fingerprint, name_of, pair
from ckaudit.recorder.files.scalar_log import number
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.loop.step_state import StepState
from ckaudit.recorder.model.gradient_norms import Norms
from ckaudit.recorder.stats.arrays import dense, is_away, is_sharded
from ckaudit.recorder.stats.float32_rounding import shorten


# Small numbers on their way from an accelerator: sent for in one copy, read once they are needed.
class AsyncCopy:
    """Elements of a few small tensors, which come here while the training goes on.

    Reading a number of an accelerator at once would make the program wait until all work queued there is done. A parcel is
    one copy into pinned memory behind that work; who opens it a step later finds it arrived.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        """Send for all elements of `tensors`, each of any type and shape, on any device."""
        first = tensors[0].device
        self._kinds = [(tensor.dtype, tensor.numel() * tensor.itemsize) for tensor in tensors]
        bytes_of = [dense(tensor).reshape(-1).view(torch.uint8).to(first, non_blocking=True) for tensor in tensors]
        self._bytes = torch.cat(bytes_of).to("cpu", non_blocking=True)
        self._arrived = None if first.type == "cpu" else torch.Event(first.type)
        if self._arrived is not None:
            self._arrived.record()

    def open(self) -> list[Tensor]:
        """Return the elements of each tensor in one dimension, in this process's memory; wait where they are not here yet."""
        if self._arrived is not None:
            self._arrived.synchronize()
        parts = torch.split(self._bytes, [size for _, size in self._kinds])
        return [part.clone().view(dtype) for part, (dtype, _) in zip(parts, self._kinds, strict=True)]


class PendingStats(Struct):
    """Norms, loss and batch of one step.

    On an accelerator they are sent for when the step is finished, and read one step later: nothing waits for them.

    Attributes:
        names: Tensors whose gradients have norms.
        norms: Their norms, as they are in memory; None: there are none, or all are at hand.
        at_hand: Norms by name, where nothing has to be fetched: names are still in the cache where norms are taken.
        scale: What lies on the gradients: loss scale and clipping.
        loss: As the training gave it.
        batch: Fingerprint of the inputs, None where there are none.
        shape: Their shape.
    """

    names: Sequence[str] = ()
    norms: Norms | None = None
    at_hand: dict[str, float] | None = None
    scale: float = 1.0
    loss: Any = None
    batch: Any = None
    shape: tuple[int, ...] = ()
    _parcel: AsyncCopy | None = None

    def look(self, batch: Any) -> None:
        """Take the fingerprint of a batch."""
        inputs = pair(batch)[0]
        if inputs is not None:
            self.batch, self.shape = fingerprint(inputs), tuple(inputs.shape)

    def send(self) -> bool:
        """Send for what is on an accelerator, and tell whether there is any."""
        pieces = None if self.norms is None else self.norms.pieces
        away = [tensor for tensor in (pieces, self.loss, self.batch) if _is_away(tensor)]
        self._parcel = AsyncCopy(away) if away else None
        return bool(away)

    def arrive(self) -> None:
        """Put what was sent for into its places."""
        if self._parcel is None:
            return
        here = iter(self._parcel.open())
        if self.norms is not None and _is_away(self.norms.pieces):
            self.norms = replace(self.norms, pieces=next(here))
        if _is_away(self.loss):
            self.loss = next(here)
        if _is_away(self.batch):
            self.batch = next(here)

    def norms_of(self) -> dict[str, float]:
        """Return the norm of every gradient, without what lies on it."""
        known = self.at_hand
        if known is None:
            known = {} if self.norms is None else dict(zip(self.names, self.norms.numbers(), strict=True))
        return known if self.scale == 1.0 else {name: norm / self.scale for name, norm in known.items()}

    def loss_of(self) -> float | None:
        """Return the loss.

        Raises:
            TypeError: If it is no scalar.
            ValueError: If it is a text that is no number, or ranks hold parts of it.
        """
        loss = self.loss
        is_plain = type(loss) is Tensor and loss.dtype == torch.float32 and loss.numel() == 1
        return shorten(loss.item()) if is_plain else number(loss)

    def hash_of(self) -> str | None:
        """Return the hash of the batch."""
        if self.batch is None:
            return None
        return name_of(int(self.batch.item()) if isinstance(self.batch, Tensor) else self.batch, self.shape)


def fetch(attempt: StepState, guard: Guard, batches: BatchesSeen) -> None:
    """Read what was measured of a step and has arrived, and put it into its line; what fails is not recorded."""
    unread, attempt.unread = attempt.unread or PendingStats(), None
    with guard("reading gradients"):
        attempt.take(unread.norms_of())
    with guard("reading the loss"):
        attempt.loss = unread.loss_of()
    with guard("looking at the batch"):
        attempt.input_hash = unread.hash_of()
    attempt.note_read(batches.see(attempt.step, attempt.input_hash))


def _is_away(value: Any) -> TypeGuard[Tensor]:
    # Of what ranks hold together a parcel would bring this rank's part only: reading it says so.
    return isinstance(value, Tensor) and not is_sharded(value) and is_away(value)
