"""What the weights were at step 0: the file `reference.npz`, against which `moved` is measured in every session."""

import math
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ckaudit.contract.write import write_atomic
from ckaudit.recorder.arrays import Array, flat, norm, to_numpy
from ckaudit.recorder.tensors import stride_of

REFERENCE_NAME = "reference.npz"


class Entry(Struct, frozen=True):
    """Step 0 of one tensor: its norm and its strided values."""

    norm: float
    shape: tuple[int, ...]
    values: NDArray[np.floating]


class Reference:
    """The weights of step 0 in brief, by tensor name."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self.entries = dict(entries)

    @classmethod
    def take(cls, tensors: Mapping[str, Array]) -> "Reference":
        """Return the reference of these weights: each norm, and every `stride_of`-th value, at most 4,096."""
        return cls({name: _entry(tensor) for name, tensor in tensors.items()})

    @classmethod
    def load(cls, path: Path) -> "Reference":
        """Read the file back.

        Raises:
            OSError: If it cannot be opened.
            ValueError: If it is not such a file.
            KeyError: If it is not such a file.
        """
        with np.load(path, allow_pickle=False) as file:
            names, norms, shapes = file["names"].tolist(), file["norms"].tolist(), file["shapes"].tolist()
            pieces = np.split(file["values"], np.cumsum(file["counts"]))[:-1]
        sizes = [tuple(int(size) for size in shape.split("x") if size) for shape in shapes]
        found = zip(names, norms, sizes, pieces, strict=True)
        return cls({name: Entry(norm, shape, values) for name, norm, shape, values in found})

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        entries = list(self.entries.values())
        stream = BytesIO()
        np.savez(
            stream,
            names=np.array(list(self.entries), dtype=np.str_),
            norms=np.array([entry.norm for entry in entries]),
            shapes=np.array(["x".join(map(str, entry.shape)) for entry in entries], dtype=np.str_),
            counts=np.array([entry.values.size for entry in entries], dtype=np.int64),
            values=np.concatenate([entry.values for entry in entries]) if entries else np.zeros(0),
        )
        write_atomic(path, stream.getvalue())

    def moved(self, name: str, tensor: Array) -> float | None:
        r"""Return $\lVert w_t - w_0\rVert / \lVert w_0\rVert$; None for an unknown or reshaped tensor, or norm zero.

        Where only samples were kept, the squared distance is scaled up by elements over samples.
        """
        entry = self.entries.get(name)
        if entry is None or entry.shape != tuple(tensor.shape) or not entry.norm:
            return None
        now = _strided(tensor).astype(np.float64)
        distance = float(np.linalg.norm(now - entry.values.astype(np.float64)))
        return distance * math.sqrt(math.prod(tensor.shape) / now.size) / entry.norm


def _entry(tensor: Array) -> Entry:
    return Entry(norm(flat(tensor)), tuple(tensor.shape), _strided(tensor))


def _strided(tensor: Array) -> NDArray[np.floating]:
    values: NDArray[np.floating] = to_numpy(flat(tensor)[:: stride_of(tensor.shape)]).copy()
    return values
