"""Small noisy pictures of bars, circles, crosses and other shapes, each somewhere else and of another size."""

import torch
from torch import Generator, Tensor

from ckaudit.lab.corpora.classes import ClassCorpus
from ckaudit.lab.plan import Data

SIZE = 16
SHAPES = ("horizontal bar", "vertical bar", "circle", "disc", "square", "cross", "diagonal cross", "triangle")


def outline(name: str, x: Tensor, y: Tensor, radius: float) -> Tensor:
    """Return where the ink of a shape is, for offsets from its middle in pixels."""
    far, near = torch.maximum(x.abs(), y.abs()), torch.minimum(x.abs(), y.abs())
    inside = far <= radius
    masks = {
        "horizontal bar": (y.abs() <= 1) & inside,
        "vertical bar": (x.abs() <= 1) & inside,
        "circle": ((x**2 + y**2).sqrt() - radius).abs() <= 0.7,
        "disc": x**2 + y**2 <= radius**2,
        "square": (far - radius).abs() <= 0.5,
        "cross": (near <= 0.5) & inside,
        "diagonal cross": (far - near <= 0.5) & inside,
        "triangle": (y <= radius) & (2 * x.abs() <= y + radius),
    }
    return masks[name]


def picture(label: int, generator: Generator, *, noise: float = 0.5) -> Tensor:
    """Draw a picture of a shape, (1, 16, 16): a contrast of 0.7 to 1.3 on noise, about unit variance."""
    radius = int(torch.randint(3, 6, (), generator=generator))
    column, line = torch.randint(radius, SIZE - radius, (2,), generator=generator).tolist()
    contrast = 0.7 + 0.6 * float(torch.rand((), generator=generator))
    y, x = torch.meshgrid(torch.arange(SIZE) - line, torch.arange(SIZE) - column, indexing="ij")
    ink = outline(SHAPES[label], x.float(), y.float(), radius).float()
    return (2 * contrast * ink + noise * torch.randn(SIZE, SIZE, generator=generator))[None]


def shapes(plan: Data, seed: int) -> ClassCorpus:
    """Return the corpus."""
    return ClassCorpus(plan, seed, classes=len(SHAPES), make=picture)
