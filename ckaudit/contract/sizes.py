"""Sizes in bytes of the parts of a checkpoint in its file."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from ckaudit.contract.io.grids import GridEncoding
from ckaudit.contract.schema.checkpoint import GRID_SIZE

Kind = Literal["numbers", "outputs", "distributions", "activations", "weights", "attention", "gradients"]


class SizedPart(Struct, frozen=True):
    """The facts of a tensor, a module or an attention layer that determine its size in the file.

    Attributes:
        name: Its name.
        depth: Index of its block; None outside the blocks.
        grids: Number of grids that it can have: none for a vector, one for a matrix, one per head for attention.
        cells: Number of elements of each grid.
        is_causal: Whether it is causal attention: nearly half of its cells are zero.
    """

    name: str
    depth: int | None
    grids: int = 0
    cells: int = GRID_SIZE**2
    is_causal: bool = False


class Sizes(Struct, frozen=True, kw_only=True):
    """Bytes in JSON, measured on random statistics of a 310-tensor model, and the shares left after compression.

    Attributes:
        sections: Number of sections with an entry per tensor: weights, gradients and movement.
        norms: Fixed numbers of one tensor: norms of weight, gradient and movement, and non-finite elements.
        numbers: The other numbers of one weight and its gradient.
        distribution: Histograms of 16 bins and percentiles of one weight and its gradient.
        module: Fixed numbers of one module's output.
        output: Its other numbers.
        module_histogram: Its histogram.
        head: Numbers of one attention head.
        name: Overhead of a name as an object key: quotes, colon, comma and braces.
        rest: Everything that is independent of the model's size.
        q8: One cell of a packed grid, in base64.
        nested: One cell of a nested grid of 4 digits.
        grid: Overhead of a grid around its cells.
        statistics_left: Share of the statistics left after compression, by suffix.
        q8_left: The same for packed grids.
        nested_left: The same for nested grids.
        causal_left: Share of a causal grid's cells that compression has to keep.
    """

    sections: int = 3
    norms: int = 47 + 40 + 62
    numbers: int = 122 + 133
    distribution: int = 208 + 229
    module: int = 50
    output: int = 209
    module_histogram: int = 141
    head: int = 82
    name: int = 6
    rest: int = 4_000
    q8: float = 4 / 3
    nested: float = 8.9
    grid: int = 100
    statistics_left: Mapping[str, float] = field(default_factory=lambda: {".json": 1.0, ".json.gz": 0.22, ".json.zst": 0.24})
    q8_left: Mapping[str, float] = field(default_factory=lambda: {".json": 1.0, ".json.gz": 0.73, ".json.zst": 0.72})
    nested_left: Mapping[str, float] = field(default_factory=lambda: {".json": 1.0, ".json.gz": 0.31, ".json.zst": 0.32})
    causal_left: float = 0.52


SIZES = Sizes()
WEIGHTS_ONLY = Sizes(sections=1, norms=47, numbers=122, distribution=208)


def with_extra_numbers(sizes: Sizes, *, exact: bool, spectral: bool) -> Sizes:
    """Return the sizes if each tensor also has the hash of its bytes, or its largest singular value.

    >>> with_extra_numbers(SIZES, exact=True, spectral=True).norms - SIZES.norms
    128
    """
    return replace(sizes, norms=sizes.norms + 51 * min(sizes.sections, 2) * exact + 26 * spectral)


def tensor_part(name: str, shape: Sequence[int], depth: int | None) -> SizedPart:
    """Return a tensor as a part; more than two dimensions count as a matrix (first by all others)."""
    if len(shape) < 2 or not math.prod(shape):
        return SizedPart(name, depth)
    rows, columns = shape[0], math.prod(shape[1:])
    return SizedPart(name, depth, 1, min(rows, GRID_SIZE) * min(columns, GRID_SIZE))


class Chunk(Struct, frozen=True):
    """The bytes that one layer adds to the file for one kind."""

    kind: Kind
    names: list[str]
    bytes: float


class Groups(Struct, frozen=True):
    """The parts of a model, indexed by layer.

    Attributes:
        tensors: All weights.
        layers: All attention layers.
        modules: All modules whose output is measured.
        encoding: How grids are written.
        suffix: How the file is packed.
        sizes: Bytes of each part.
    """

    tensors: Sequence[SizedPart]
    layers: Sequence[SizedPart]
    modules: Sequence[SizedPart]
    encoding: GridEncoding
    suffix: str
    sizes: Sizes = SIZES

    def always(self, besides: int = 0) -> float:
        """Return the size of a file without everything optional; `besides` is the number of additional bytes of JSON."""
        s = self.sizes
        tensors = sum(s.norms + s.sections * self._name(part) for part in self.tensors)
        heads = sum(s.head * part.grids + self._name(part) for part in self.layers)
        modules = sum(s.module + self._name(part) for part in self.modules)
        return (s.rest + besides + tensors + heads + modules) * s.statistics_left[self.suffix]

    def chunk(self, kind: Kind, depth: int | None) -> Chunk:
        """Return the bytes that the layer at `depth` adds for a kind."""
        s = self.sizes
        bytes_of_one = {
            "numbers": s.numbers,
            "distributions": s.distribution,
            "outputs": s.output,
            "activations": s.module_histogram,
        }
        source = {"attention": self.layers, "outputs": self.modules, "activations": self.modules}.get(kind, self.tensors)
        parts = [part for part in source if part.depth == depth]
        if kind in bytes_of_one:
            size = bytes_of_one[kind] * len(parts) * s.statistics_left[self.suffix]
            return Chunk(kind, [part.name for part in parts], size)
        parts = [part for part in parts if part.grids] if self.encoding != "none" else []
        return Chunk(kind, [part.name for part in parts], sum(map(self._grids, parts)))

    def _name(self, part: SizedPart) -> int:
        return len(part.name.encode()) + self.sizes.name

    def _grids(self, part: SizedPart) -> float:
        s, cells = self.sizes, float(part.grids * part.cells)
        if part.is_causal and self.suffix != ".json":
            cells *= s.causal_left
        if self.encoding == "nested":
            return (s.grid + s.nested * cells) * s.nested_left[self.suffix]
        return (s.grid + s.q8 * cells) * s.q8_left[self.suffix]
