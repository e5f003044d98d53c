"""Classification examples, points of a table or small pictures, each made by its own random generator."""

from collections.abc import Callable
from functools import cache
from zlib import crc32

import torch
from torch import Generator, Tensor

from ckaudit.lab.plan import Data
from ckaudit.lab.task import Batch, row_number

Make = Callable[[int, Generator], Tensor]


class ClassCorpus:
    """Examples of equally frequent classes.

    Args:
        plan: The batch size; its length, tokens and shares are not used.
        seed: Seed of the training examples.
        classes: Number of classes.
        make: Makes an example of a class.
    """

    def __init__(self, plan: Data, seed: int, *, classes: int, make: Make) -> None:
        self._plan, self._seed, self.vocabulary, self._make = plan, seed, classes, make

    def batch(self, step: int, *, part: int = 0, parts: int = 1) -> Batch:
        """Return the batch of a step, or a part of it: the same examples in any number of parts."""
        count = self._plan.batch_size // parts
        first = (step - 1) * self._plan.batch_size + part * count
        return self._stack(range(first, first + count), id=f"{step}/{part}")

    def held_out(self) -> Batch:
        """Return the held-out examples, the same for every seed; if none are held apart, the first of the training set."""
        numbers = range(4 * self._plan.held_rows)  # one target each, while a row of text has many
        return self._stack(numbers, name="held out") if self._plan.held_apart else self._stack(numbers)

    def _stack(self, numbers: range, *, name: str | None = None, id: str | None = None) -> Batch:  # noqa: A002
        rows = [number if name else row_number(number, rows=self._plan.rows, seed=self._seed) for number in numbers]
        made = [self._example(name or f"{self._seed}/row", row) for row in rows]
        return Batch(inputs=torch.stack([each for each, _ in made]), targets=torch.tensor([label for _, label in made]), id=id)

    def _example(self, name: str, number: int) -> tuple[Tensor, int]:
        generator = seeded(f"{name}/{number}")
        label = int(torch.randint(self.vocabulary, (), generator=generator))
        return self._make(label, generator), label


def seeded(name: str) -> Generator:
    """Return a random generator seeded by a name."""
    return Generator().manual_seed(crc32(name.encode()))


# Points of a table: each class is a few clouds among those of other classes, so that no plane separates them.
FEATURES = 8
CLASSES = 6
CLOUDS = 8  # of each class


@cache
def centres() -> Tensor:
    """Return the centre of each cloud, (classes, clouds, features)."""
    return torch.randn(CLASSES, CLOUDS, FEATURES, generator=seeded("points"))


def point(label: int, generator: Generator, *, spread: float = 0.4) -> Tensor:
    """Draw a point around one of the class's centres, (features,); a feature has about unit variance."""
    cloud = int(torch.randint(CLOUDS, (), generator=generator))
    noise = torch.randn(FEATURES, generator=generator)
    return (centres()[label, cloud] + spread * noise) / (1 + spread**2) ** 0.5


def points(plan: Data, seed: int) -> ClassCorpus:
    """Return the corpus."""
    return ClassCorpus(plan, seed, classes=CLASSES, make=point)


# Small noisy pictures of bars, circles, crosses and other shapes, with random position and size.
SIZE = 16
SHAPES = ("horizontal bar", "vertical bar", "circle", "disc", "square", "cross", "diagonal cross", "triangle")


def outline(name: str, x: Tensor, y: Tensor, radius: float) -> Tensor:
    """Return where a shape has ink, for offsets from its centre in pixels."""
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
