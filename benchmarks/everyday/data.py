"""Synthetic data that can be learnt, and the batches that a loader makes of it."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Generator, Tensor

Batch = tuple[Tensor, ...]  # inputs first, targets last
Batches = Iterator[Batch]
Sampler = Callable[[int, Generator], Batch]  # draws so many rows


def source(number: int = 0) -> Generator:
    """Return one of many sources of random numbers; the seed that torch was given decides over all of them."""
    return torch.Generator().manual_seed(1_000 * torch.initial_seed() + number)


def task_source(number: int) -> Generator:
    """Return a source of what belongs to a task itself, such as the centres of its classes: the same under every seed."""
    return torch.Generator().manual_seed(number)


def stream(sample: Sampler, rows: int, drawn: Generator) -> Batches:
    """Yield fresh batches without an end: no row comes twice."""
    while True:
        yield sample(rows, drawn)


def epochs(data: Batch, rows: int, drawn: Generator) -> Batches:
    """Yield the batches of a fixed set of rows, shuffled anew in every epoch; the incomplete last one is dropped."""
    while True:
        order = torch.randperm(len(data[0]), generator=drawn)
        for start in range(0, len(order) - rows + 1, rows):
            yield picked(data, order[start : start + rows])


def sampled(data: Batch, rows: int, drawn: Generator) -> Batches:
    """Yield batches of a fixed set of rows without an end, each row drawn from all of them."""
    while True:
        yield picked(data, torch.randint(len(data[0]), (rows,), generator=drawn))


def picked(data: Batch, rows: Tensor) -> Batch:
    """Return the rows of some numbers."""
    return tuple(column[rows] for column in data)


def concatenate(batches: Sequence[Batch]) -> Batch:
    """Return the rows of several batches as one."""
    return tuple(torch.cat(columns) for columns in zip(*batches, strict=True))


def split(data: Batch, held_out: int) -> tuple[Batch, Batch]:
    """Return the rows to train on, and so many of the last to hold out."""
    return tuple(column[:-held_out] for column in data), tuple(column[-held_out:] for column in data)


def blobs(
    rows: int, drawn: Generator, *, features: int = 20, classes: int = 5, noise: float = 1.0, apart: float = 1.2, task: int = 5
) -> Batch:
    """Return points (rows, features) around the centre of their class, and the classes."""
    centres = apart * torch.randn(classes, features, generator=task_source(task))
    labels = torch.randint(classes, (rows,), generator=drawn)
    return centres[labels] + noise * torch.randn(rows, features, generator=drawn), labels


def points(rows: int, drawn: Generator, *, features: int = 20, classes: int = 5) -> Batch:
    """Return the points of blobs without their classes."""
    return blobs(rows, drawn, features=features, classes=classes, apart=0.9)[:1]


def pictures(rows: int, drawn: Generator, *, classes: int = 5, contrast: float = 0.35, tile: int = 16, size: int = 16) -> Batch:
    """Return pictures (rows, 3, size, size): the pattern of their class in noise, made of tiles; and the classes."""
    patterns = torch.randn(classes, 3, tile, tile, generator=task_source(3)).repeat(1, 1, size // tile, size // tile)
    labels = torch.randint(classes, (rows,), generator=drawn)
    return contrast * patterns[labels] + torch.randn(rows, 3, size, size, generator=drawn), labels


def squares(rows: int, drawn: Generator, *, size: int = 24, side: int = 7) -> Batch:
    """Return noisy pictures (rows, 1, size, size) of a bright square, and a mask (rows, size, size) of where it is."""
    corners = torch.randint(size - side, (rows, 2, 1), generator=drawn)
    inside = (torch.arange(size) >= corners) & (torch.arange(size) < corners + side)  # (rows, 2, size)
    mask = inside[:, 0, :, None] & inside[:, 1, None, :]
    return (mask + 0.4 * torch.randn(rows, size, size, generator=drawn))[:, None], mask.long()


def markov_chains(rows: int, drawn: Generator, *, words: int = 48, length: int = 32, sharpness: float = 2.2) -> Batch:
    """Return Markov chains of tokens (rows, length), each drawn by the one before it, and the tokens that follow them."""
    following = torch.softmax(sharpness * torch.randn(words, words, generator=task_source(4)), -1)
    tokens = [torch.randint(words, (rows,), generator=drawn)]
    for _ in range(length):
        tokens.append(torch.multinomial(following[tokens[-1]], 1, generator=drawn)[:, 0])
    chain = torch.stack(tokens, 1)
    return chain[:, :-1], chain[:, 1:]


def topics(rows: int, drawn: Generator, *, words: int = 300, length: int = 24, classes: int = 4) -> Batch:
    """Return texts (rows, length) of which a quarter of the words belong to their topic, and the topics."""
    labels = torch.randint(classes, (rows,), generator=drawn)
    text = torch.randint(words, (rows, length), generator=drawn)
    own = 70 * labels[:, None] + torch.randint(60, (rows, length), generator=drawn)
    return torch.where(torch.rand(rows, length, generator=drawn) < 0.25, own, text), labels


def waves(rows: int, drawn: Generator, *, length: int = 40) -> Batch:
    """Return noisy sine waves (rows, length, 1) of any phase, and which of three frequencies they have."""
    labels = torch.randint(3, (rows,), generator=drawn)
    frequency = torch.tensor([0.2, 0.35, 0.5])[labels, None]
    phase = 2 * torch.pi * torch.rand(rows, 1, generator=drawn)
    wave = torch.sin(frequency * torch.arange(length) + phase)
    return (wave + 0.7 * torch.randn(rows, length, generator=drawn))[..., None], labels


def curve(rows: int, drawn: Generator, *, features: int = 8) -> Batch:
    """Return features (rows, features) and a noisy number (rows, 1) that bends with them."""
    hidden = torch.randn(features, 16, generator=task_source(3))
    outer = torch.randn(16, 1, generator=task_source(4))
    x = torch.randn(rows, features, generator=drawn)
    return x, 0.5 * torch.tanh(x @ hidden) @ outer + 0.1 * torch.randn(rows, 1, generator=drawn)


def text(length: int, *, letters: int = 60, words: int = 400) -> Tensor:
    """Return the letters (length,) of a text as numbers: words of two to eight letters, some of them common, and spaces.

    Which word comes next depends on the one before, so that there is something to learn beyond spelling.
    """
    drawn = task_source(6)
    sizes = torch.randint(2, 9, (words,), generator=drawn).tolist()
    lexicon = [[*torch.randint(1, letters, (size,), generator=drawn).tolist(), 0] for size in sizes]
    common = 1 / torch.arange(1, words + 1)
    following = common * torch.exp(2 * torch.randn(words, words, generator=drawn))
    written: list[int] = []
    word = 0
    while len(written) < length:
        written += lexicon[word]
        word = int(torch.multinomial(following[word], 1, generator=drawn))
    return torch.tensor(written[:length])


def windows(letters: Tensor, rows: int, drawn: Generator, *, length: int = 48) -> Batch:
    """Return stretches (rows, length) of a text from anywhere in it, and the letters that follow each."""
    starts = torch.randint(len(letters) - length, (rows, 1), generator=drawn) + torch.arange(length + 1)
    return letters[starts][:, :-1], letters[starts][:, 1:]
