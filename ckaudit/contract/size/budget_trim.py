"""Takes out of a checkpoint what its plan has no room for, and says so in the file."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET

from ckaudit.contract.schema.checkpoint import Checkpoint
from ckaudit.contract.size.budget import BudgetPlan
from ckaudit.contract.size.sizes import Kind, SizedPart

GRID, QK_GRID = "sampled_grid_32x32", "sampled_qk_grid_32x32_per_head"
# What the planner counts under each kind; norms, movement, non-finite elements and dead units are in every checkpoint.
FIELDS: tuple[tuple[str, Kind, tuple[str, ...]], ...] = (
    ("weights", "numbers", ("shape", "dtype", "numel", "mean", "std", "m2", "min", "max")),
    ("weights", "distributions", ("percentiles", "histogram")),
    ("gradients", "numbers", ("mean", "std", "m2", "min", "max", "zero_fraction", "dtype", "numel")),
    ("gradients", "distributions", ("percentiles", "histogram")),
    (
        "activations",
        "outputs",
        ("shape", "dtype", "mean", "std", "min", "max", "mean_abs", "p50", "p99", "sparsity", "outlier_rate", "sampled"),
    ),
    ("activations", "activations", ("histogram",)),
)


def keep(checkpoint: Checkpoint, plan: BudgetPlan, tensors: Sequence[SizedPart], layers: Sequence[SizedPart]) -> None:
    """Keep what is planned, and name in `left_out` every kind of thing that some tensor, module or layer lacks.

    Args:
        checkpoint: A checkpoint that holds at least what is planned; changed in place.
        plan: What it may hold.
        tensors: All weights, as they were planned.
        layers: All attention layers, as they were planned.
    """
    held: dict[str, Mapping[str, Any]] = {
        name: getattr(checkpoint, name) or {} for name in ("weights", "gradients", "activations", "attention")
    }
    lost = [] if checkpoint.left_out is UNSET else checkpoint.left_out
    for section, kind, fields in FIELDS:
        bare = [name for name in held[section] if not plan.has(kind, name)]
        lost += [f"{section}.*.{field}" for field in fields if _drop(held[section], bare, field)]
        if "percentiles" in fields:
            _drop(held[section], bare, "sampled")
    by_grid: tuple[tuple[Kind, Sequence[SizedPart]], ...] = (("weights", tensors), ("gradients", tensors), ("attention", layers))
    for kind, parts in by_grid:
        field = QK_GRID if kind == "attention" else GRID
        without = [part.name for part in parts if part.grids and part.name in held[kind] and not plan.has(kind, part.name)]
        _drop(held[kind], without, field)
        lost += [f"{kind}.*.{field}"] if without else []
    checkpoint.left_out = list(dict.fromkeys(lost)) or UNSET


def _drop(entries: Mapping[str, Any], names: Sequence[str], field: str) -> bool:
    """Take a field out of the named entries, and tell whether any had it."""
    having = [name for name in names if getattr(entries[name], field) is not UNSET]
    for name in having:
        setattr(entries[name], field, UNSET)
    return bool(having)
