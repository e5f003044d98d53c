"""Takes out of a checkpoint what its plan has no room for, and says so in the file."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET

from ckaudit.contract.analysis import Checkpoint
from ckaudit.contract.budget import Kind, Part, Plan

GRID, QK_GRID = "sampled_grid_32x32", "sampled_qk_grid_32x32_per_head"


def keep(checkpoint: Checkpoint, plan: Plan, tensors: Sequence[Part], layers: Sequence[Part]) -> None:
    """Keep what is planned, and name in `left_out` every kind of thing that some tensor, module or layer lacks.

    Args:
        checkpoint: A checkpoint that holds at least what is planned; changed in place.
        plan: What it may hold.
        tensors: All weights, as they were planned.
        layers: All attention layers, as they were planned.
    """
    weights, gradients = checkpoint.weights or {}, checkpoint.gradients or {}
    attention, activations = checkpoint.attention or {}, checkpoint.activations or {}
    lost = []
    sections: tuple[tuple[str, Mapping[str, Any]], ...] = (("weights", weights), ("gradients", gradients))
    for section, entries in sections:
        bare = [name for name in entries if not plan.has("distributions", name)]
        lost += [f"{section}.*.{field}" for field in ("histogram", "percentiles") if _drop(entries, bare, field)]
        _drop(entries, bare, "sampled")
    if _drop(activations, [name for name in activations if not plan.has("activations", name)], "histogram"):
        lost.append("activations.*.histogram")
    by_grid: tuple[tuple[Kind, Mapping[str, Any], Sequence[Part]], ...] = (
        ("weights", weights, tensors),
        ("gradients", gradients, tensors),
        ("attention", attention, layers),
    )
    for kind, having, parts in by_grid:
        field = QK_GRID if kind == "attention" else GRID
        without = [part.name for part in parts if part.grids and part.name in having and not plan.has(kind, part.name)]
        _drop(having, without, field)
        lost += [f"{kind}.*.{field}"] if without else []
    checkpoint.left_out = lost or UNSET


def _drop(entries: Mapping[str, Any], names: Sequence[str], field: str) -> bool:
    """Take a field out of the named entries, and tell whether any had it."""
    having = [name for name in names if getattr(entries[name], field) is not UNSET]
    for name in having:
        setattr(entries[name], field, UNSET)
    return bool(having)
