"""How far an update moved the weights, and how far all updates together did."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ckaudit.contract.schema.checkpoint import DeltaStats
from ckaudit.recorder.model.initial_weights import Reference
from ckaudit.recorder.stats.arrays import Array, dense_at_hand, double, is_away, library, square_sum, to_numpy, widened
from ckaudit.recorder.stats.batched_stats import STRETCH, stretches
from ckaudit.recorder.stats.float32_rounding import shortest_of


def copies(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Return a copy of the weights, to be compared with after the update."""
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def distances(
    ones: Sequence[Array], others: Sequence[Array], *, sizes: Sequence[float] | None = None, chunk: int = STRETCH
) -> list[tuple[float, float]]:
    """Return of each pair of tensors the L2 norm of the difference, and that of the first, summed in float64.

    Args:
        ones: Tensors.
        others: As many, of the same shapes and types, that nobody needs any more.
        sizes: Norms of the first, where they are known.
        chunk: Elements taken at a time.
    """
    if sizes is not None and ones and not isinstance(ones[0], np.ndarray):
        from ckaudit.recorder.stats.differences import difference_norms

        if (found := difference_norms(ones, others)) is not None:
            return [*zip(found, sizes, strict=True)]
    first, second = ([dense_at_hand(each).reshape(-1) for each in side] for side in (ones, others))
    apart, own = ([0.0] * len(first) for _ in range(2))
    for group in stretches(first, chunk):
        now, then = ([widened(side[owner][start:end]) for owner, start, end in group] for side in (first, second))
        squares = _squares([*_differences(now, then), *(now if sizes is None else ())])
        for column, found in ((apart, squares[: len(group)]), (own, squares[len(group) :])):
            for (owner, _, _), square in zip(group, found, strict=False):
                column[owner] += square
    return [*zip(map(_root, apart), map(_root, own) if sizes is None else sizes, strict=True)]


def _differences(ones: Sequence[Array], others: Sequence[Array]) -> list[Array]:
    """Return the difference of each pair of stretches: that of neighbours is exact."""
    with np.errstate(invalid="ignore", over="ignore"):
        return [one - other for one, other in zip(ones, others, strict=True)]


def _squares(stretches: Sequence[Array]) -> list[float]:
    """Return the sum of squares of each stretch."""
    if is_away(stretches[0]):
        return [*library(stretches[0]).stack([*map(square_sum, map(double, stretches))]).tolist()]
    with np.errstate(invalid="ignore", over="ignore"):
        return [float(square_sum(double(to_numpy(stretch)))) for stretch in stretches]


def _root(square: float) -> float:
    return math.sqrt(square) if square >= 0 else math.nan


def movement(
    tensors: Mapping[str, Array],
    before: Mapping[str, Array],
    reference: Reference | None,
    *,
    sizes: Mapping[str, float] | None = None,
) -> tuple[dict[str, DeltaStats], float | None]:
    r"""Return each tensor's movement, and that of all together, $\lVert\Delta W\rVert / \lVert W\rVert$ (M11).

    Args:
        tensors: The weights after the update.
        before: Copies from before it; a tensor without one has no `norm`.
        reference: Step 0, for `moved`; without it there is none.
        sizes: The norms of all weights after the update, where they are known.

    Returns:
        The section by tensor, without tensors of which nothing is known, and the ratio over all copied tensors; a ratio
        to weights that are all zero is not recorded.
    """
    both = [name for name in tensors if name in before]
    known = None if sizes is None else [sizes[name] for name in both]
    found = distances([tensors[name] for name in both], [before[name] for name in both], sizes=known)
    return described(dict(zip(both, found, strict=True)), reference.moved(tensors) if reference else {})


def described(pairs: Mapping[str, tuple[float, float]], moved: Mapping[str, float]) -> tuple[dict[str, DeltaStats], float | None]:
    """Return what `movement` does, from how far an update moved each tensor and its norm, and from its way since step 0."""
    deltas = {name: delta for name, (delta, _) in pairs.items()}
    relative = {name: delta / size for name, (delta, size) in pairs.items() if size}
    fields = {"norm": deltas, "relative": relative, "moved": moved}
    found: dict[str, DeltaStats] = {name: DeltaStats() for name in {**moved, **pairs}}
    numbers = [(name, field, each) for field, by_name in fields.items() for name, each in by_name.items()]
    for (name, field, _), number in zip(numbers, shortest_of([each for _, _, each in numbers]), strict=True):
        setattr(found[name], field, number)
    whole = math.sqrt(sum(size * size for _, size in pairs.values()))
    return found, math.sqrt(sum(delta * delta for delta in deltas.values())) / whole if whole else None
