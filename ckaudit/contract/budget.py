"""What a checkpoint holds under a size budget: a pure function of the model's shape and the checkpoint's ordinal.

The numbers of every tensor, module and head are always written. What makes a file large takes turns by whole layer:
grids, and, where even the statistics are too large, histograms and percentiles.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct, field

from ckaudit.contract.grids import GRID_SIZE, GridEncoding

Kind = Literal["distributions", "activations", "weights", "attention", "gradients"]


class Part(Struct, frozen=True):
    """A tensor, a module or an attention layer, as far as its size in the file depends on it.

    Attributes:
        name: Its name.
        depth: Index of its block; None outside the blocks.
        grids: Grids that it can have: none for a vector, one for a matrix, one a head for attention.
        cells: Elements of each grid.
    """

    name: str
    depth: int | None
    grids: int = 0
    cells: int = GRID_SIZE**2


class Plan(Struct, frozen=True):
    """What is written beyond the numbers: names of tensors or layers by kind, and the size expected of the whole file."""

    chosen: Mapping[Kind, frozenset[str]]
    bytes: int

    def has(self, kind: Kind, name: str) -> bool:
        """Return whether this tensor or layer has its grid, or its distribution."""
        return name in self.chosen[kind]


class Sizes(Struct, frozen=True, kw_only=True):
    """Bytes in JSON as measured on random statistics of a 310-tensor model, and what packing leaves of them.

    Attributes:
        weight: Numbers of one weight and of its movement, without names.
        gradient: Numbers of one gradient.
        distribution: Histogram of 16 bins and percentiles of one tensor, of its weights or its gradient.
        module: Numbers of one module's output.
        module_histogram: Its histogram.
        head: Numbers of one attention head.
        rest: Everything that does not grow with the model.
        q8: One cell of a packed grid, in base64.
        nested: One cell of a nested grid of 4 digits.
        grid: What stands around the cells of a grid.
        statistics_left: Share of the statistics that is left after packing, by suffix.
        q8_left: The same for packed grids.
        nested_left: The same for nested grids.
    """

    weight: int = 175 + 70
    gradient: int = 180
    distribution: int = 235
    module: int = 255
    module_histogram: int = 140
    head: int = 82
    rest: int = 4_000
    q8: float = 4 / 3
    nested: float = 8.9
    grid: int = 100
    statistics_left: Mapping[str, float] = field(default_factory=lambda: {".json": 1.0, ".json.gz": 0.22, ".json.zst": 0.23})
    q8_left: Mapping[str, float] = field(default_factory=lambda: {".json": 1.0, ".json.gz": 0.73, ".json.zst": 0.72})
    nested_left: Mapping[str, float] = field(default_factory=lambda: {".json": 1.0, ".json.gz": 0.31, ".json.zst": 0.32})


SIZES = Sizes()


def tensor_part(name: str, shape: Sequence[int], depth: int | None) -> Part:
    """Return a tensor as a part; one of more than two dimensions is seen as a matrix (first, all others)."""
    if len(shape) < 2 or not math.prod(shape):
        return Part(name, depth)
    rows, columns = shape[0], math.prod(shape[1:])
    return Part(name, depth, 1, min(rows, GRID_SIZE) * min(columns, GRID_SIZE))


class Due(Struct, frozen=True):
    """Layers whose grids a checkpoint may hold.

    Attributes:
        turn: Those that it always holds: whose turn it is, and as many after them as give enough grids.
        landmarks: Embedding, head, first, middle and last block, where they are due and the budget has room.
        order: All layers, from the one whose turn it is.
    """

    turn: list[int | None]
    landmarks: list[int | None]
    order: list[int | None]

    @property
    def depths(self) -> frozenset[int | None]:
        """Every layer that may have grids."""
        return frozenset((*self.turn, *self.landmarks))


def due(
    parts: Sequence[Part],
    ordinal: int,
    *,
    last: bool = False,
    at_least: int = 12,
    landmarks_each: int = 5,
    cycle: int = 40,
) -> Due:
    """Return the layers whose turn it is at a checkpoint; only its ordinal decides, so two runs with one cadence compare.

    The numbers are this contract's own decision.

    Args:
        parts: Weights and attention layers, in the order of the forward pass; where heads are not known yet, no layer is
            missing from the answer.
        ordinal: Checkpoints that the cadence asked for until now, as `cadence.ordinal` counts them.
        last: Whether this is the run's last checkpoint.
        at_least: Grids that every checkpoint holds, if the model has them.
        landmarks_each: Distance of the checkpoints with the landmarks; the first and the last have them too.
        cycle: Checkpoints in which every layer has its turn.
    """
    layers = list(dict.fromkeys(part.depth for part in parts if part.grids))
    if not layers:
        return Due([], [], [])
    grids = Counter[int | None]()
    for part in parts:
        grids[part.depth] += part.grids
    count = -(-len(layers) // cycle)
    start = ordinal * count % len(layers)
    order = layers[start:] + layers[:start]
    while count < len(order) and sum(grids[depth] for depth in order[:count]) < at_least:
        count += 1
    marked = landmarks(layers) if last or ordinal % landmarks_each == 0 else []
    return Due(order[:count], [depth for depth in marked if depth not in order[:count]], order)


def landmarks(depths: Sequence[int | None]) -> list[int | None]:
    """Return what lies outside the blocks (None: embedding, head), and the first, the last and the middle block.

    >>> landmarks([None, 0, 1, 2, 3, 4, None])
    [None, 0, 4, 2]
    """
    blocks = sorted({depth for depth in depths if depth is not None})
    outside: list[int | None] = [None] if None in depths else []
    return [*outside, *dict.fromkeys(blocks[place] for place in (0, -1, len(blocks) // 2) if blocks)]


def plan(
    tensors: Sequence[Part],
    layers: Sequence[Part],
    modules: Sequence[Part],
    ordinal: int,
    budget_kb: float | None,
    *,
    encoding: GridEncoding = "q8",
    suffix: str = ".json",
    last: bool = False,
    sizes: Sizes = SIZES,
) -> Plan:
    """Return what a checkpoint holds.

    The numbers and the grids whose turn it is are always in it. What still fits is added by whole layer, in this order:
    histograms and percentiles of weights and gradients, histograms of activations, grids of the landmarks, and grids of
    the gradients of the same layers.

    Args:
        tensors: All weights.
        layers: All attention layers.
        modules: All modules whose output is measured.
        ordinal: Checkpoints that the cadence asked for until now.
        budget_kb: Size of the file, in thousands of bytes; None: everything, in every checkpoint.
        encoding: How grids are written.
        suffix: How the file is packed.
        last: Whether this is the run's last checkpoint.
        sizes: Bytes of each part.
    """
    turn = due([*tensors, *layers], ordinal, last=last)
    everything: list[int | None] = list(dict.fromkeys(part.depth for part in (*tensors, *layers, *modules)))
    depths = Due(everything, [], everything) if budget_kb is None else turn
    at = _Groups(tensors, layers, modules, encoding, suffix, sizes)
    always = [at.chunk(kind, depth) for depth in depths.turn for kind in _GRIDS]
    order = list(dict.fromkeys((*depths.order, *everything)))
    optional = [
        *(at.chunk(kind, depth) for kind in _STATISTICS for depth in order),
        *(at.chunk(kind, depth) for depth in depths.landmarks for kind in _GRIDS),
        *(at.chunk("gradients", depth) for depth in (*depths.turn, *depths.landmarks)),
    ]
    size, limit = at.numbers() + sum(chunk.bytes for chunk in always), math.inf if budget_kb is None else budget_kb * 1000
    chosen: dict[Kind, set[str]] = {kind: set() for kind in (*_STATISTICS, *_GRIDS, "gradients")}
    for chunk in always:
        chosen[chunk.kind].update(chunk.names)
    for chunk in optional:
        if size + chunk.bytes <= limit:
            size += chunk.bytes
            chosen[chunk.kind].update(chunk.names)
    return Plan({kind: frozenset(names) for kind, names in chosen.items()}, round(size))


def suffix_for(
    tensors: Sequence[Part],
    layers: Sequence[Part],
    modules: Sequence[Part],
    budget_kb: float | None,
    *,
    encoding: GridEncoding = "q8",
) -> str:
    """Return how to pack a run's files: as plain JSON, unless the budget would then leave out statistics."""
    if budget_kb is None:
        return ".json"
    chosen = plan(tensors, layers, modules, 1, budget_kb, encoding=encoding)
    complete = len(chosen.chosen["distributions"]) == len(tensors) and len(chosen.chosen["activations"]) == len(modules)
    return ".json" if complete and chosen.bytes <= budget_kb * 1000 else ".json.zst"


_STATISTICS: tuple[Kind, ...] = ("distributions", "activations")
_GRIDS: tuple[Kind, ...] = ("weights", "attention")


class _Chunk(Struct, frozen=True):
    """What one layer adds to the file, of one kind."""

    kind: Kind
    names: list[str]
    bytes: float


class _Groups(Struct, frozen=True):
    """The parts of a model, ready to be asked by layer."""

    tensors: Sequence[Part]
    layers: Sequence[Part]
    modules: Sequence[Part]
    encoding: GridEncoding
    suffix: str
    sizes: Sizes

    def numbers(self) -> float:
        """Return the size of a file without grids, histograms and percentiles."""
        s = self.sizes
        tensors = sum(s.weight + s.gradient + 3 * _name(part) for part in self.tensors)
        heads = sum(s.head * part.grids + _name(part) for part in self.layers)
        modules = sum(s.module + _name(part) for part in self.modules)
        return (s.rest + tensors + heads + modules) * s.statistics_left[self.suffix]

    def chunk(self, kind: Kind, depth: int | None) -> _Chunk:
        """Return what the layer at `depth` adds of a kind."""
        s, left = self.sizes, self.sizes.statistics_left[self.suffix]
        source = self.layers if kind == "attention" else self.modules if kind == "activations" else self.tensors
        parts = [part for part in source if part.depth == depth]
        if kind == "distributions":
            return _Chunk(kind, [part.name for part in parts], 2 * s.distribution * len(parts) * left)
        if kind == "activations":
            return _Chunk(kind, [part.name for part in parts], s.module_histogram * len(parts) * left)
        parts = [part for part in parts if part.grids] if self.encoding != "none" else []
        return _Chunk(kind, [part.name for part in parts], sum(map(self._grids, parts)))

    def _grids(self, part: Part) -> float:
        s, cells = self.sizes, part.grids * part.cells
        if self.encoding == "nested":
            return (s.grid + s.nested * cells) * s.nested_left[self.suffix]
        return (s.grid + s.q8 * cells) * s.q8_left[self.suffix]


def _name(part: Part, *, marks: int = 4) -> int:
    """Return the bytes of a name as a key: quotes, colon and comma included."""
    return len(part.name.encode()) + marks
