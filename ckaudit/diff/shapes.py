"""How far the same parts of two models have come apart: their distributions, grids, norms, heads, and what moves most."""

import math
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ckaudit.contract.diff import Drift
from ckaudit.contract.numbers import to_word
from ckaudit.diff.distances import (
    chance_index,
    distribution,
    rank_correlation,
    relative_distance,
    stability_index,
    wasserstein,
)
from ckaudit.diff.files import checkpoints_of, read_document

Document = Mapping[str, Any]
SPREAD = ("weights", "gradients", "activations")
NORMS = (("weights", "frobenius_norm"), ("gradients", "norm"), ("weight_deltas", "norm"), ("activations", "rms"))
GRIDS = (("weights", "sampled_grid_32x32"), ("gradients", "sampled_grid_32x32"), ("attention", "sampled_qk_grid_32x32_per_head"))
FARTHEST: dict[str, Callable[[float], float]] = {
    "wasserstein": abs, "psi": abs, "grid": abs, "head_entropy": abs, "movement_rank": lambda value: 1 - value,
    "norm": lambda ratio: abs(math.log(ratio)) if ratio > 0 else math.inf,
}  # fmt: skip
"""Measures in the order that they are told in, and how far a value of each is from what equal parts have."""


def drifts(left: Path, right: Path, steps: Sequence[int], *, most: int = 3) -> list[Drift]:
    """Return how far two runs have come apart at some steps.

    Args:
        left: Folder of the reference; the log of another program has no checkpoints, and no drift.
        right: Folder of the subject.
        steps: Steps that both have a checkpoint of; others are passed over.
        most: How many places of each measure and step are told, the farthest first.
    """
    found: list[Drift] = []
    files = [checkpoints_of(folder) for folder in (left, right)]
    for step in steps:
        one, other = (each.get(step) for each in files)
        if one is not None and other is not None:
            documents = read_document(one.path, one.shown), read_document(other.path, other.shown)
            found += drifts_of(*documents, step, most=most)
    return found


def drifts_of(left: Document, right: Document, step: int, *, most: int = 3) -> list[Drift]:
    """Return how far two checkpoints have come apart, the farthest places of each measure; parts that are equal have no drift."""
    found = [drift for measure in (_spreads, _grids, _norms, _heads, _movement) for drift in measure(left, right, step)]
    kept: list[Drift] = []
    for name, far in FARTHEST.items():
        own = [drift for drift in found if drift.measure == name]
        kept += sorted(own, key=lambda drift: -far(float(drift.value)))[:most]
    return kept


def shared(left: Document, right: Document, section: str) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """Yield name and both members of what both checkpoints have in a section."""
    mine, theirs = (document.get(section) for document in (left, right))
    if not isinstance(mine, dict) or not isinstance(theirs, dict):
        return
    for name, one in mine.items():
        other = theirs.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            yield name, one, other


def _both(left: Mapping[str, Any], right: Mapping[str, Any], field: str) -> tuple[float, float] | None:
    """Return both values where both are numbers that a float can hold."""
    one, other = left.get(field), right.get(field)
    if not (isinstance(one, int | float) and isinstance(other, int | float)):
        return None
    try:
        return float(one), float(other)
    except OverflowError:
        return None


def _spreads(left: Document, right: Document, step: int, *, shift: float = 0.1, large: float = 0.25) -> Iterator[Drift]:
    """Yield the two distances of each pair of histograms; no index of so few values that chance alone makes a shift of it."""
    for section in SPREAD:
        for name, one, other in shared(left, right, section):
            if one.get("histogram") == other.get("histogram") or not ("histogram" in one and "histogram" in other):
                continue
            p, q = distribution(one["histogram"]), distribution(other["histogram"])
            if p is None or q is None:
                continue
            said = _both(one, other, "std")
            unit = said[0] if said and said[0] > 0 else p.spread()
            noun = f"the distribution of {section.replace('_', ' ')} in {name}"
            if unit > 0:
                far = wasserstein(p, q) / unit
                message = f"{noun} has moved by {far:.3g} of its standard deviation"
                yield _drift("wasserstein", section, name, step, far, message, unit="sd")
            if chance_index(p, q) > shift:
                continue
            index = stability_index(p, q)
            size = f"large, above {large}" if index > large else f"a shift, above {shift}" if index > shift else "small"
            yield _drift("psi", section, name, step, index, f"{noun} has a stability index of {index:.3g} ({size})", unit="nats")


def _grids(left: Document, right: Document, step: int) -> Iterator[Drift]:
    for section, field in GRIDS:
        for name, one, other in shared(left, right, section):
            if one.get(field) == other.get(field) or not (field in one and field in other):
                continue
            a, b = cells(one[field]), cells(other[field])
            if not a or len(a) != len(b) or not all(map(math.isfinite, (*a, *b))):
                continue
            far = relative_distance(a, b)
            message = f"the sampled {section} of {name} are {far:.3g} of their size apart"
            yield _drift("grid", section, name, step, far, message)


def cells(grid: Any) -> list[float]:
    """Return the values of a grid or a stack of them one after the other; none where it is no grid.

    >>> cells([[1.0, "NaN"], [2.0, 3.0]])
    [1.0, nan, 2.0, 3.0]
    """
    try:
        if isinstance(grid, dict):
            low, high = float(grid["min"]), float(grid["max"])
            return [low + (high - low) * (byte / 255.0) for byte in b64decode(grid["data"])]
        if isinstance(grid, list):
            return [value for part in grid for value in cells(part)] if isinstance(grid[0], (list, dict)) else [*map(float, grid)]
    except (KeyError, IndexError, TypeError, ValueError, OverflowError):  # what is wrong with it, validate tells
        pass
    return []


def _norms(left: Document, right: Document, step: int) -> Iterator[Drift]:
    for section, field in NORMS:
        for name, one, other in shared(left, right, section):
            norms = _both(one, other, field)
            if norms is None or norms[0] == norms[1] or not norms[0] > 0:
                continue
            ratio = norms[1] / norms[0]
            message = f"the {field} of {section} in {name} is {norms[1]:.4g}, {ratio:.4g} times the {norms[0]:.4g} of the first"
            yield _drift("norm", section, name, step, ratio, message, values=norms)


def _heads(left: Document, right: Document, step: int) -> Iterator[Drift]:
    for layer, one, other in shared(left, right, "attention"):
        mine, theirs = (each.get("entropy_per_head") or [] for each in (one, other))
        if len(mine) != len(theirs):
            continue
        for head, (here, there) in enumerate(zip(mine, theirs, strict=True)):
            if here == there or not (isinstance(here, (int, float)) and isinstance(there, (int, float))):
                continue
            name, apart = f"{layer}/head.{head}", there - here
            message = f"the entropy of {name} is {there:.4g} nats, {here:.4g} in the first"
            values = float(here), float(there)
            yield _drift("head_entropy", "attention", name, step, apart, message, unit="nats", values=values)


def _movement(left: Document, right: Document, step: int) -> Iterator[Drift]:
    """Yield whether the tensors that moved most since the start are the same."""
    pairs = [both for _, one, other in shared(left, right, "weight_deltas") if (both := _both(one, other, "moved"))]
    if all(here == there for here, there in pairs):
        return
    rank = rank_correlation([here for here, _ in pairs], [there for _, there in pairs])
    if rank is not None and rank < 1:
        message = f"the ranking of {len(pairs)} tensors by how far they moved has a correlation of {rank:.3g}"
        yield _drift("movement_rank", "weight_deltas", None, step, rank, message)


def _drift(
    measure: str, section: str, where: str | None, step: int, value: float, message: str, *, unit: str = "1",
    values: tuple[float, float] | tuple[None, None] = (None, None),
) -> Drift:  # fmt: skip
    return Drift(
        measure=measure, section=section, where=where, step=step, left=values[0], right=values[1], value=to_word(value),
        unit=unit, message=message,
    )  # fmt: skip
