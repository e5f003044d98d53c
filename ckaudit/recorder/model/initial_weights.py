"""What the weights were at step 0: the file `reference.npz`, against which `moved` is measured in every session."""

import math
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ckaudit.contract.io.files import write_atomic
from ckaudit.recorder.stats.arrays import Array, dense_at_hand, flat, norm, to_numpy, widened
from ckaudit.recorder.stats.quantiles import stride_of

REFERENCE_NAME = "reference.npz"


class InitialTensor(Struct, frozen=True):
    """Step 0 of one tensor: its norm and its strided values."""

    norm: float
    shape: tuple[int, ...]
    values: NDArray[np.floating]


class Reference:
    """The weights of step 0 in brief, by tensor name."""

    def __init__(self, entries: Mapping[str, InitialTensor]) -> None:
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
        return cls({name: InitialTensor(norm, shape, values) for name, norm, shape, values in found})

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

    def moved(self, tensors: Mapping[str, Array]) -> dict[str, float]:
        r"""Return $\lVert w_t - w_0\rVert / \lVert w_0\rVert$ of each tensor; none of an unknown or reshaped one, or norm zero.

        Where only samples were kept, the squared distance is scaled up by elements over samples.
        """
        known = {name: entry for name, entry in self.entries.items() if entry.norm and entry.values.size}
        names = [name for name, tensor in tensors.items() if name in known and known[name].shape == tuple(tensor.shape)]
        if not names:
            return {}
        now = [_strided(tensors[name]) for name in names]
        sizes = np.array([values.size for values in now])
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.concatenate(now).astype(np.float64) - np.concatenate([known[name].values for name in names])
            squares = np.add.reduceat(apart * apart, np.cumsum(sizes) - sizes) / sizes
            whole = np.array([math.prod(known[name].shape) for name in names])
            shares = np.sqrt(squares * whole) / [known[name].norm for name in names]
        return dict(zip(names, shares.tolist(), strict=True))


def _entry(tensor: Array) -> InitialTensor:
    return InitialTensor(norm(flat(tensor)), tuple(tensor.shape), _strided(tensor).copy())


def _strided(tensor: Array) -> NDArray[np.floating]:
    """Return the elements at the tensor's stride; where they are all, and at hand, they are not a copy."""
    return to_numpy(widened(dense_at_hand(tensor).reshape(-1)[:: stride_of(tensor.shape)]))
