"""Drift between the same parts of two models: distributions, weight grids, norms, attention heads, and largest movements."""

import math
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import nsmallest
from pathlib import Path
from typing import Any

from msgspec import Struct

from ckaudit.contract.schema.diff import Drift
from ckaudit.contract.schema.numbers import encode_float
from ckaudit.diff.checkpoint_values import checkpoints_of, read_document
from ckaudit.diff.distances import (
    distribution,
    expected_stability_index,
    rank_correlation,
    relative_distance,
    stability_index,
    wasserstein,
)

Document = Mapping[str, Any]
SPREAD = ("weights", "gradients", "activations")
NORMS = {"weights": "frobenius_norm", "gradients": "norm", "weight_deltas": "norm", "activations": "rms"}
UNITS = {"wasserstein": "sd", "psi": "nats", "head_entropy": "nats"}
SHIFT = 0.1  # of the stability index: below it there is no shift (Siddiqi 2006)
GRIDS = (("weights", "sampled_grid_32x32"), ("gradients", "sampled_grid_32x32"), ("attention", "sampled_qk_grid_32x32_per_head"))
FARTHEST: dict[str, Callable[[float], float]] = {
    "wasserstein": abs,
    "psi": abs,
    "grid": abs,
    "head_entropy": abs,
    "movement_rank": lambda value: 1 - value,
    "norm": lambda ratio: abs(math.log(ratio)) if ratio > 0 else math.inf,
}
"""Measures in the order of the report, with the deviation of a value from that of equal parts."""


def drifts(left: Path, right: Path, steps: Sequence[int], *, max_places: int = 3) -> list[Drift]:
    """Return the drift of two runs at some steps.

    Args:
        left: Folder of the reference; the log of another program has no checkpoints, and no drift.
        right: Folder of the subject.
        steps: Steps for which both have a checkpoint; others are skipped.
        max_places: Maximum number of reported places per measure and step, the largest first.
    """
    drifts: list[Drift] = []
    files = [checkpoints_of(folder) for folder in (left, right)]
    for step in steps:
        one, other = (file.get(step) for file in files)
        if one is not None and other is not None:
            documents = read_document(one.path, one.shown), read_document(other.path, other.shown)
            drifts += drifts_of(*documents, step, max_places=max_places)
    return drifts


class RankedDistance(Struct, frozen=True, gc=False):
    """One distance; only the few that are reported get a sentence.

    Attributes:
        measure: Name of the measure.
        section: Section of the checkpoint.
        where: Tensor, layer or head; None: the run as a whole.
        value: The distance.
        left: Value of the first, if the measure compares two.
        right: Value of the second.
        pairs: Number of ranked items, for a rank correlation.
    """

    measure: str
    section: str
    where: str | None
    value: float
    left: float | None = None
    right: float | None = None
    pairs: int = 0


def drifts_of(left: Document, right: Document, step: int, *, max_places: int = 3) -> list[Drift]:
    """Return the drift of two checkpoints, the farthest places of each measure; equal parts have no drift."""
    by_measure: dict[str, list[RankedDistance]] = {name: [] for name in FARTHEST}
    for measure in (_spreads, _grids, _norms, _heads, _movement):
        for far in measure(left, right):
            by_measure[far.measure].append(far)
    farthest: list[RankedDistance] = []
    for name, size in FARTHEST.items():
        farthest += nsmallest(max_places, by_measure[name], key=lambda far, size=size: -size(far.value))  # type: ignore[misc]
    return [
        Drift(
            measure=far.measure,
            section=far.section,
            where=far.where,
            step=step,
            left=far.left,
            right=far.right,
            value=encode_float(far.value),
            unit=UNITS.get(far.measure, "1"),
            message=_sentence(far),
        )
        for far in farthest
    ]


def shared(left: Document, right: Document, section: str) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """Yield name and both members of the places that both checkpoints have in a section."""
    of_first, of_second = (document.get(section) for document in (left, right))
    if not isinstance(of_first, dict) or not isinstance(of_second, dict):
        return
    for name, one in of_first.items():
        other = of_second.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            yield name, one, other


def _both(left: Mapping[str, Any], right: Mapping[str, Any], field: str) -> tuple[float, float] | None:
    """Return both values if both are numbers that a float can represent."""
    one, other = left.get(field), right.get(field)
    if not (isinstance(one, int | float) and isinstance(other, int | float)):
        return None
    try:
        return float(one), float(other)
    except OverflowError:
        return None


def _spreads(left: Document, right: Document, *, shift: float = SHIFT) -> Iterator[RankedDistance]:
    """Yield the two distances of each pair of histograms; no index of values so few that chance alone exceeds the limit."""
    for section in SPREAD:
        for name, one, other in shared(left, right, section):
            of_first, of_second = one.get("histogram"), other.get("histogram")
            if of_first is None or of_second is None or of_first == of_second:
                continue
            p, q = distribution(of_first), distribution(of_second)
            if p is None or q is None:
                continue
            spreads = _both(one, other, "std")
            unit = spreads[0] if spreads and spreads[0] > 0 else p.spread()
            if unit > 0:
                yield RankedDistance("wasserstein", section, name, wasserstein(p, q) / unit)
            if expected_stability_index(p, q) <= shift:
                yield RankedDistance("psi", section, name, stability_index(p, q))


def _grids(left: Document, right: Document) -> Iterator[RankedDistance]:
    for section, field in GRIDS:
        for name, one, other in shared(left, right, section):
            if one.get(field) == other.get(field) or not (field in one and field in other):
                continue
            a, b = cells(one[field]), cells(other[field])
            if a and len(a) == len(b) and all(map(math.isfinite, (*a, *b))):
                yield RankedDistance("grid", section, name, relative_distance(a, b))


def cells(grid: Any) -> list[float]:
    """Return the flat values of a grid or a stack of grids; empty if it is no grid.

    >>> cells([[1.0, "NaN"], [2.0, 3.0]])
    [1.0, nan, 2.0, 3.0]
    """
    try:
        if isinstance(grid, dict):
            low, high = float(grid["min"]), float(grid["max"])
            return [low + (high - low) * (byte / 255.0) for byte in b64decode(grid["data"])]
        if isinstance(grid, list):
            return [value for part in grid for value in cells(part)] if isinstance(grid[0], (list, dict)) else [*map(float, grid)]
    except (KeyError, IndexError, TypeError, ValueError, OverflowError):  # `validate` reports what is wrong with it
        pass
    return []


def _norms(left: Document, right: Document) -> Iterator[RankedDistance]:
    for section, field in NORMS.items():
        for name, one, other in shared(left, right, section):
            norms = _both(one, other, field)
            if norms is not None and norms[0] != norms[1] and norms[0] > 0:
                yield RankedDistance("norm", section, name, norms[1] / norms[0], *norms)


def _heads(left: Document, right: Document) -> Iterator[RankedDistance]:
    for layer, one, other in shared(left, right, "attention"):
        of_first, of_second = (layer_values.get("entropy_per_head") or [] for layer_values in (one, other))
        if len(of_first) != len(of_second):
            continue
        for head, (left_entropy, right_entropy) in enumerate(zip(of_first, of_second, strict=True)):
            if (
                left_entropy != right_entropy
                and isinstance(left_entropy, (int, float))
                and isinstance(right_entropy, (int, float))
            ):
                yield RankedDistance(
                    "head_entropy",
                    "attention",
                    f"{layer}/head.{head}",
                    right_entropy - left_entropy,
                    float(left_entropy),
                    float(right_entropy),
                )


def _movement(left: Document, right: Document) -> Iterator[RankedDistance]:
    """Yield whether the tensors that moved most since the start are the same."""
    pairs = [both for _, one, other in shared(left, right, "weight_deltas") if (both := _both(one, other, "moved"))]
    if all(one == other for one, other in pairs):
        return
    rank = rank_correlation([one for one, _ in pairs], [other for _, other in pairs])
    if rank is not None and rank < 1:
        yield RankedDistance("movement_rank", "weight_deltas", None, rank, pairs=len(pairs))


def _sentence(far: RankedDistance, *, shift: float = SHIFT, large: float = 0.25) -> str:
    value, noun = far.value, f"the distribution of {far.section.replace('_', ' ')} in {far.where}"
    if far.measure == "wasserstein":
        return f"{noun} has moved by {value:.3g} of its standard deviation"
    if far.measure == "psi":
        size = f"large, above {large}" if value > large else f"a shift, above {shift}" if value > shift else "small"
        return f"{noun} has a stability index of {value:.3g} ({size})"
    if far.measure == "grid":
        return f"the sampled {far.section} of {far.where} are {value:.3g} of their size apart"
    if far.measure == "norm":
        what = f"the {NORMS[far.section]} of {far.section} in {far.where}"
        return f"{what} is {far.right:.4g}, {value:.4g} times the {far.left:.4g} of the first"
    if far.measure == "head_entropy":
        return f"the entropy of {far.where} is {far.right:.4g} nats, {far.left:.4g} in the first"
    return f"the ranking of {far.pairs} tensors by how far they moved has a correlation of {value:.3g}"
