"""Contents of a checkpoint under a size budget: a pure function of the model's shape and the checkpoint's ordinal.

The norms of every tensor, the movement of every weight, all numbers of every head, and the grids that are due are always written.
Large parts rotate by whole layer: grids and, where even the statistics are too large, histograms, percentiles and moments.
`apply_plan` removes from a checkpoint what its plan has no room for.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET, Struct

from ckaudit.contract.io.grids import GridEncoding
from ckaudit.contract.schema.checkpoint import Checkpoint
from ckaudit.contract.sizes import SIZES, Chunk, Groups, Kind, SizedPart, Sizes

GRID, QK_GRID = "sampled_grid_32x32", "sampled_qk_grid_32x32_per_head"
# Fields of each kind for the planner; norms, movement, non-finite elements and dead units are in every checkpoint.
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


class BudgetPlan(Struct, frozen=True):
    """Names of the tensors or layers that are written beyond the fixed numbers, by kind, and the file's expected size."""

    chosen: Mapping[Kind, frozenset[str]]
    bytes: int

    def has(self, kind: Kind, name: str) -> bool:
        """Return whether this tensor or layer has its grid, or its distribution."""
        return name in self.chosen[kind]


class LayersDue(Struct, frozen=True):
    """Layers whose grids a checkpoint may hold.

    Attributes:
        turn: Layers that it always holds: those whose turn it is, and as many after them as give enough grids.
        landmarks: Embedding, head, first, middle and last block, if they are due and the budget has room.
        order: All layers, starting with the one whose turn it is.
    """

    turn: list[int | None]
    landmarks: list[int | None]
    order: list[int | None]

    @property
    def depths(self) -> frozenset[int | None]:
        """Every layer that may have grids."""
        return frozenset((*self.turn, *self.landmarks))


def grids_due(
    parts: Sequence[SizedPart], ordinal: int, *, last: bool = False, at_least: int = 12, landmarks_each: int = 5, cycle: int = 40
) -> LayersDue:
    """Return the layers whose turn it is at a checkpoint. Only its ordinal decides, so runs with one cadence are comparable.

    The numbers are this contract's own decision.

    Args:
        parts: Weights and attention layers, in the order of the forward pass; no layer is missing even if heads are not known
            yet.
        ordinal: Number of checkpoints that the cadence asked for so far, as `cadence.ordinal` counts them.
        last: Whether this is the run's last checkpoint.
        at_least: Grids that every checkpoint holds, if the model has them.
        landmarks_each: Distance of the checkpoints with the landmarks; the first and the last have them too.
        cycle: Checkpoints in which every layer has its turn.
    """
    layers = list(dict.fromkeys(part.depth for part in parts if part.grids))
    if not layers:
        return LayersDue([], [], [])
    grids = Counter[int | None]()
    for part in parts:
        grids[part.depth] += part.grids
    count = -(-len(layers) // cycle)
    start = ordinal * count % len(layers)
    order = layers[start:] + layers[:start]
    while count < len(order) and sum(grids[depth] for depth in order[:count]) < at_least:
        count += 1
    marked = landmarks(layers) if last or ordinal % landmarks_each == 0 else []
    return LayersDue(order[:count], [depth for depth in marked if depth not in order[:count]], order)


def landmarks(depths: Sequence[int | None]) -> list[int | None]:
    """Return None if anything is outside the blocks (embedding, head), and the first, the last and the middle block.

    >>> landmarks([None, 0, 1, 2, 3, 4, None])
    [None, 0, 4, 2]
    """
    blocks = sorted({depth for depth in depths if depth is not None})
    outside: list[int | None] = [None] if None in depths else []
    return [*outside, *dict.fromkeys(blocks[place] for place in (0, -1, len(blocks) // 2) if blocks)]


def plan(
    tensors: Sequence[SizedPart],
    layers: Sequence[SizedPart],
    modules: Sequence[SizedPart],
    ordinal: int,
    budget_kb: float | None,
    *,
    encoding: GridEncoding = "q8",
    suffix: str = ".json",
    last: bool = False,
    besides: int = 0,
    sizes: Sizes = SIZES,
) -> BudgetPlan:
    """Return the contents of a checkpoint.

    The module docstring lists what is always written; with a black box the grids have to fit too. The rest is added by whole
    layer as long as it fits, in this order: all statistics of the layers whose turn it is, moments of all others, their
    histograms and percentiles of weights and gradients, their histograms of activations, grids of the landmarks, and grids of the
    gradients of the layers with grids.

    Args:
        tensors: All weights.
        layers: All attention layers.
        modules: All modules whose output is measured.
        ordinal: Number of checkpoints that the cadence asked for so far.
        budget_kb: Size of the file, in thousands of bytes; None: everything, in every checkpoint.
        encoding: How grids are written.
        suffix: How the file is packed.
        last: Whether this is the run's last checkpoint.
        besides: Bytes in JSON of what only this checkpoint has, such as the black box.
        sizes: Bytes of each part.
    """
    turn = grids_due([*tensors, *layers], ordinal, last=last)
    everything: list[int | None] = list(dict.fromkeys(part.depth for part in (*tensors, *layers, *modules)))
    depths = LayersDue(everything, [], everything) if budget_kb is None else turn
    at = Groups(tensors, layers, modules, encoding, suffix, sizes)
    size, limit = at.always(besides), math.inf if budget_kb is None else budget_kb * 1000
    chosen: dict[Kind, set[str]] = {kind: set() for kind in (*_STATISTICS, *_GRIDS, "gradients")}
    grids = [at.chunk(kind, depth) for depth in depths.turn for kind in _GRIDS]
    for place, chunk in enumerate([*grids, *_optional(at, depths, list(dict.fromkeys((*depths.order, *everything))))]):
        if size + chunk.bytes <= limit or (place < len(grids) and not besides):
            size += chunk.bytes
            chosen[chunk.kind].update(chunk.names)
    return BudgetPlan({kind: frozenset(names) for kind, names in chosen.items()}, round(size))


def _optional(at: Groups, depths: LayersDue, order: Sequence[int | None]) -> list[Chunk]:
    """Return what is added while there is room, in order of priority.

    Args:
        at: The parts of the model.
        depths: Layers that may have grids.
        order: All layers, starting with the one whose turn it is.
    """
    others = [depth for depth in order if depth not in depths.turn]
    return [
        *(at.chunk(kind, depth) for depth in depths.turn for kind in _STATISTICS),
        *(at.chunk(kind, depth) for depth in others for kind in ("numbers", "outputs")),
        *(at.chunk(kind, depth) for kind in ("distributions", "activations") for depth in others),
        *(at.chunk(kind, depth) for depth in depths.landmarks for kind in _GRIDS),
        *(at.chunk("gradients", depth) for depth in (*depths.turn, *depths.landmarks)),
    ]


def bytes_for_black_box(
    tensors: Sequence[SizedPart],
    layers: Sequence[SizedPart],
    modules: Sequence[SizedPart],
    ordinal: int,
    budget_kb: float | None,
    *,
    encoding: GridEncoding = "q8",
    suffix: str = ".json",
    sizes: Sizes = SIZES,
    share: float = 0.2,
) -> float:
    """Return the bytes of JSON that a black box may have: what statistics and due grids leave of the budget.

    Args:
        tensors: All weights.
        layers: All attention layers.
        modules: All modules whose output is measured.
        ordinal: Number of checkpoints that the cadence asked for so far.
        budget_kb: Size of the file, in thousands of bytes; None: any size.
        encoding: How grids are written.
        suffix: How the file is packed.
        sizes: Bytes of each part.
        share: Smallest part of the budget for it; this contract's own decision.
    """
    if budget_kb is None:
        return math.inf
    at = Groups(tensors, layers, modules, encoding, suffix, sizes)
    grids = sum(at.chunk(kind, depth).bytes for depth in grids_due([*tensors, *layers], ordinal).turn for kind in _GRIDS)
    depths = dict.fromkeys(part.depth for part in (*tensors, *modules))
    statistics = at.always() + sum(at.chunk(kind, depth).bytes for kind in _STATISTICS for depth in depths)
    return max(share * budget_kb * 1000, budget_kb * 1000 - statistics - grids) / sizes.statistics_left[suffix]


def suffix_for(
    tensors: Sequence[SizedPart],
    layers: Sequence[SizedPart],
    modules: Sequence[SizedPart],
    budget_kb: float | None,
    *,
    encoding: GridEncoding = "q8",
    sizes: Sizes = SIZES,
) -> str:
    """Return the suffix of a run's files: plain JSON, unless the budget would then leave out statistics."""
    if budget_kb is None:
        return ".json"
    chosen = plan(tensors, layers, modules, 1, budget_kb, encoding=encoding, sizes=sizes)
    # Moments are planned before distributions, so if these are complete, moments are too.
    complete = len(chosen.chosen["distributions"]) == len(tensors) and len(chosen.chosen["activations"]) == len(modules)
    return ".json" if complete and chosen.bytes <= budget_kb * 1000 else ".json.zst"


_STATISTICS: tuple[Kind, ...] = ("numbers", "outputs", "distributions", "activations")
_GRIDS: tuple[Kind, ...] = ("weights", "attention")


def apply_plan(checkpoint: Checkpoint, plan: BudgetPlan, tensors: Sequence[SizedPart], layers: Sequence[SizedPart]) -> None:
    """Keep what is planned, and list in `left_out` every field that some tensor, module or layer lacks.

    Args:
        checkpoint: A checkpoint with at least what is planned; changed in place.
        plan: What it may hold.
        tensors: All weights, as planned.
        layers: All attention layers, as planned.
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
    """Remove a field from the named entries, and tell whether any had it."""
    having = [name for name in names if getattr(entries[name], field) is not UNSET]
    for name in having:
        setattr(entries[name], field, UNSET)
    return bool(having)
