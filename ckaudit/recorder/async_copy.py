"""Small numbers on their way from an accelerator: sent for in one copy, read once they are needed."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ckaudit.recorder.arrays import dense


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
