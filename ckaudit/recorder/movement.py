"""How far an update moved the weights, and how far all updates together did."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ckaudit.contract.tensors import DeltaStats
from ckaudit.recorder.arrays import Array, double, is_away, library, line, widened
from ckaudit.recorder.digits import shortest_of
from ckaudit.recorder.reference import Reference
from ckaudit.recorder.sweep import STRETCH, laid, stretches


def copies(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Return a copy of the weights, to be compared with after the update."""
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def distances(ones: Sequence[Array], others: Sequence[Array], *, chunk: int = STRETCH) -> list[tuple[float, float]]:
    """Return of each pair of tensors the L2 norm of the difference, and that of the first, summed in float64."""
    first, second = [line(one) for one in ones], [line(other) for other in others]
    squares = np.zeros((len(first), 2))
    for group in stretches(first, chunk):
        pieces = [[widened(side[owner][start:end]) for owner, start, end in group] for side in (first, second)]
        for (owner, _, _), square in zip(group, _squares(*pieces), strict=True):
            squares[owner] += square
    found: list[tuple[float, float]] = [(apart, size) for apart, size in np.sqrt(squares).tolist()]
    return found


def _squares(ones: Sequence[Array], others: Sequence[Array]) -> list[Any]:
    """Return of each pair of stretches the sums of squares of the difference, and of the first, shape (P, 2)."""
    if is_away(ones[0]):
        wide = [(double(one), double(one) - other) for one, other in zip(ones, others, strict=True)]
        return [*library(ones[0]).stack([part.dot(part) for pair in wide for part in reversed(pair)]).reshape(-1, 2).tolist()]
    sizes = np.array([one.shape[0] for one in ones])
    places = np.cumsum(sizes) - sizes
    with np.errstate(invalid="ignore", over="ignore"):
        now, then = laid(ones), laid(others)
        both = ((now - then).astype(np.float64), now.astype(np.float64))  # the difference of neighbours is exact
        return [*np.stack([np.add.reduceat(np.multiply(part, part, out=part), places) for part in both], 1)]


def movement(
    tensors: Mapping[str, Array], before: Mapping[str, Array], reference: Reference | None
) -> tuple[dict[str, DeltaStats], float | None]:
    r"""Return each tensor's movement, and that of all together, $\lVert\Delta W\rVert / \lVert W\rVert$ (M11).

    Args:
        tensors: The weights after the update.
        before: Copies from before it; a tensor without one has no `norm`.
        reference: Step 0, for `moved`; without it there is none.

    Returns:
        The section by tensor, without tensors of which nothing is known, and the ratio over all copied tensors; a ratio
        to weights that are all zero is not recorded.
    """
    both = [name for name in tensors if name in before]
    pairs = dict(zip(both, distances([tensors[name] for name in both], [before[name] for name in both]), strict=True))
    return described(pairs, reference.moved(tensors) if reference else {})


def described(pairs: Mapping[str, tuple[float, float]], moved: Mapping[str, float]) -> tuple[dict[str, DeltaStats], float | None]:
    """Return what `movement` does, from how far an update moved each tensor and its norm, and from its way since step 0."""
    deltas = {name: delta for name, (delta, _) in pairs.items()}
    relative = {name: delta / size for name, (delta, size) in pairs.items() if size}
    found: dict[str, DeltaStats] = {name: DeltaStats() for name in {**moved, **pairs}}
    for field, numbers in (("norm", deltas), ("relative", relative), ("moved", moved)):
        for name, number in zip(numbers, shortest_of([*numbers.values()]), strict=True):
            setattr(found[name], field, number)
    whole = math.sqrt(sum(size * size for _, size in pairs.values()))
    return found, math.sqrt(sum(delta * delta for delta in deltas.values())) / whole if whole else None
