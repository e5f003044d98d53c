"""Movement of weights: since step 0, which `reference.npz` summarises, and in one update."""

import math
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ckaudit.contract.io.files import write_atomic
from ckaudit.contract.schema.checkpoint import DeltaStats
from ckaudit.recorder.stats.arrays import (
    Array,
    all_to_numpy,
    dense_as_numpy,
    flat,
    is_on_accelerator,
    is_sharded,
    library,
    norm,
    ravel,
    real_shape,
    square_sum,
    to_float64,
    to_numpy,
    to_wide_float,
)
from ckaudit.recorder.stats.batched_stats import STRETCH, stretches
from ckaudit.recorder.stats.device_sums import device_sums
from ckaudit.recorder.stats.float32_rounding import shortest, shortest_of
from ckaudit.recorder.stats.quantiles import stride_of

HALF_PRECISION_BYTES = 2  # bytes of an element in half precision


class InitialTensor(Struct, frozen=True):
    """Step 0 of one tensor: its norm and a strided sample of its values."""

    norm: float
    shape: tuple[int, ...]
    values: NDArray[np.floating]


class Reference:
    """A summary of the weights of step 0, by tensor name."""

    def __init__(self, entries: Mapping[str, InitialTensor]) -> None:
        self.entries = dict(entries)

    @classmethod
    def take(cls, tensors: Mapping[str, Array]) -> "Reference":
        """Return the reference of these weights: each norm, and every `stride_of`-th value, at most 4,096."""
        norms, samples = _norms([*tensors.values()]), _strided([*tensors.values()])
        return cls(
            {
                name: InitialTensor(size, tuple(tensor.shape), values.copy())
                for (name, tensor), size, values in zip(tensors.items(), norms, samples, strict=True)
            }
        )

    @classmethod
    def load(cls, path: Path) -> "Reference":
        """Read a reference file.

        Raises:
            OSError: If it cannot be opened.
            ValueError: If it is not such a file.
            KeyError: If it is not such a file.
        """
        with np.load(path, allow_pickle=False) as file:
            names, norms, shapes = file["names"].tolist(), file["norms"].tolist(), file["shapes"].tolist()
            pieces = np.split(file["values"], np.cumsum(file["counts"]))[:-1]
        sizes = [tuple(int(size) for size in shape.split("x") if size) for shape in shapes]
        rows = zip(names, norms, sizes, pieces, strict=True)
        return cls({name: InitialTensor(norm, shape, values) for name, norm, shape, values in rows})

    def save(self, path: Path) -> None:
        """Write the file atomically."""
        write_atomic(path, self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the bytes of the file."""
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
        return stream.getvalue()

    def moved(self, tensors: Mapping[str, Array]) -> dict[str, float]:
        r"""Return $\lVert w_t - w_0\rVert / \lVert w_0\rVert$ of each tensor, except unknown or reshaped ones and norm zero.

        If only a sample was kept, the squared distance is scaled up by elements over samples.
        """
        known = {name: entry for name, entry in self.entries.items() if entry.norm and entry.values.size}
        shaped = [name for name, tensor in tensors.items() if name in known and known[name].shape == tuple(tensor.shape)]
        strided = zip(shaped, _strided([tensors[name] for name in shaped]), strict=True)
        current = {name: values for name, values in strided if values.size == known[name].values.size}
        if not current:
            return {}
        names, now = [*current], [*current.values()]
        sizes = np.array([values.size for values in now])
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.concatenate(now).astype(np.float64) - np.concatenate([known[name].values for name in names])
            squares = np.add.reduceat(apart * apart, np.cumsum(sizes) - sizes) / sizes
            whole = np.array([math.prod(real_shape(tensors[name])) for name in names])
            shares = np.sqrt(squares * whole) / [known[name].norm for name in names]
        return dict(zip(names, shares.tolist(), strict=True))


def _norms(tensors: Sequence[Array]) -> list[float]:
    """Return the norm of each tensor, summed in float64."""
    if tensors and all(map(is_on_accelerator, tensors)) and len({tensor.device for tensor in tensors}) == 1:
        return [_root(sums.squares) for sums in device_sums([ravel(tensor) for tensor in tensors])]
    return [norm(flat(tensor)) for tensor in tensors]  # one by one: a half-precision model is not copied as a whole


def _strided(tensors: Sequence[Array]) -> list[NDArray[np.floating]]:
    """Return the elements at each tensor's stride; if these are all elements and in CPU memory, they are not copied."""
    return all_to_numpy([dense_as_numpy(tensor).reshape(-1)[:: stride_of(real_shape(tensor))] for tensor in tensors])


# Movement of the weights in one update, and in all updates together.
def copies(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Return a copy of the weights, for comparison after the update; on an accelerator with few calls for all."""
    if not tensors or not all(map(is_on_accelerator, tensors.values())):
        return {name: tensor.detach().clone() for name, tensor in tensors.items()}
    torch, sources = library(next(iter(tensors.values()))), [tensor.detach() for tensor in tensors.values()]
    clones = [torch.empty_like(tensor) for tensor in sources]
    torch._foreach_copy_(clones, sources)
    return dict(zip(tensors, clones, strict=True))


def distances(
    ones: Sequence[Array], others: Sequence[Array], *, sizes: Sequence[float] | None = None, chunk: int = STRETCH
) -> list[tuple[float, float]]:
    """Return the L2 norm of the difference of each pair of tensors, and that of the first, summed in float64.

    Args:
        ones: Tensors.
        others: As many, of the same shapes and dtypes; they are overwritten.
        sizes: Norms of `ones`, if known.
        chunk: Elements taken at a time.
    """
    if sizes is not None and ones and not isinstance(ones[0], np.ndarray):
        from ckaudit.recorder.model.gradient_norms import difference_norms

        if (norms := difference_norms(ones, others)) is not None:
            return [*zip(norms, sizes, strict=True)]
    first, second = ([dense_as_numpy(tensor).reshape(-1) for tensor in side] for side in (ones, others))
    apart, own = ([0.0] * len(first) for _ in range(2))
    for group in stretches(first, chunk):
        now, then = ([to_wide_float(side[owner][start:end]) for owner, start, end in group] for side in (first, second))
        squares = _squares([*_differences(now, then), *(now if sizes is None else ())])
        for column, part in ((apart, squares[: len(group)]), (own, squares[len(group) :])):
            for (owner, _, _), square in zip(group, part, strict=False):
                column[owner] += square
    return [*zip(map(_root, apart), map(_root, own) if sizes is None else sizes, strict=True)]


def unchanged_shares(ones: Sequence[Array], others: Sequence[Array]) -> list[float]:
    """Return the share of equal elements of each pair of tensors: in half precision, rounding may undo an update."""
    if not ones:
        return []
    counts = [(one == other).sum() for one, other in zip(ones, others, strict=True)]
    totals = [int(count) for count in counts] if isinstance(ones[0], np.ndarray) else library(ones[0]).stack(counts).tolist()
    return [count / max(math.prod(one.shape), 1) for count, one in zip(totals, ones, strict=True)]


def _differences(ones: Sequence[Array], others: Sequence[Array]) -> list[Array]:
    """Return the difference of each pair of chunks; it is exact for neighbouring numbers."""
    with np.errstate(invalid="ignore", over="ignore"):
        return [one - other for one, other in zip(ones, others, strict=True)]


def _squares(stretches: Sequence[Array]) -> list[float]:
    """Return the sum of squares of each chunk."""
    if is_on_accelerator(stretches[0]):
        return [*library(stretches[0]).stack([*map(square_sum, map(to_float64, stretches))]).tolist()]
    with np.errstate(invalid="ignore", over="ignore"):
        return [float(square_sum(to_float64(to_numpy(stretch)))) for stretch in stretches]


def _root(square: float) -> float:
    return math.sqrt(square) if square >= 0 else math.nan


def movement(
    tensors: Mapping[str, Array],
    before: Mapping[str, Array],
    reference: Reference | None,
    *,
    sizes: Mapping[str, float] | None = None,
) -> tuple[dict[str, DeltaStats], float | None]:
    r"""Return each tensor's movement, and the movement of all together, $\lVert\Delta W\rVert / \lVert W\rVert$ (M11).

    Args:
        tensors: The weights after the update.
        before: Copies from before the update; a tensor without one has no `norm`.
        reference: Weights of step 0, for `moved`; without them there is none.
        sizes: The norms of all weights after the update, if known.

    Returns:
        The section by tensor, without tensors about which nothing is known, and the ratio over all copied tensors. A ratio to
        weights that are all zero is not recorded.
    """
    both = [name for name in tensors if name in before]
    known = None if sizes is None else [sizes[name] for name in both]
    halves = [name for name in both if tensors[name].dtype.itemsize == HALF_PRECISION_BYTES and not is_sharded(tensors[name])]
    unchanged = unchanged_shares([tensors[name] for name in halves], [before[name] for name in halves])
    norms = distances([tensors[name] for name in both], [before[name] for name in both], sizes=known)
    stats, whole = movement_summary(dict(zip(both, norms, strict=True)), reference.moved(tensors) if reference else {})
    for name, share in zip(halves, unchanged, strict=True):
        stats[name].unchanged = shortest(share)
    return stats, whole


def movement_summary(
    pairs: Mapping[str, tuple[float, float]], moved: Mapping[str, float]
) -> tuple[dict[str, DeltaStats], float | None]:
    """Return what `movement` does, from each tensor's movement in the update and norm, and its movement since step 0."""
    deltas = {name: delta for name, (delta, _) in pairs.items()}
    relative = {name: delta / size for name, (delta, size) in pairs.items() if size}
    fields = {"norm": deltas, "relative": relative, "moved": moved}
    stats: dict[str, DeltaStats] = {name: DeltaStats() for name in {**moved, **pairs}}
    numbers = [(name, field, value) for field, by_name in fields.items() for name, value in by_name.items()]
    for (name, field, _), number in zip(numbers, shortest_of([value for _, _, value in numbers]), strict=True):
        setattr(stats[name], field, number)
    whole = math.sqrt(sum(size * size for _, size in pairs.values()))
    return stats, math.sqrt(sum(delta * delta for delta in deltas.values())) / whole if whole else None
