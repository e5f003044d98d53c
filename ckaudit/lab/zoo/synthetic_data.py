"""Learnable synthetic data: chains of tokens, pictures, graphs, tables."""

import torch
from torch import Tensor

WORDS = 64  # tokens 0 to 3 are padding, start, end and mask
FIRST = 4


def chain(source: torch.Generator, rows: int, length: int, *, followers: int = 4, shift: int = 0) -> Tensor:
    """Return token chains (rows, length): every token is followed by one of few others, which can be learnt.

    Args:
        source: Random numbers.
        rows: Number of chains.
        length: Tokens per chain.
        followers: Number of tokens that may follow a token.
        shift: Selects the language.
    """
    language = torch.Generator().manual_seed(7 + shift)
    following = torch.randint(FIRST, WORDS, (WORDS, followers), generator=language)
    tokens = torch.empty(rows, length, dtype=torch.long)
    tokens[:, 0] = torch.randint(FIRST, WORDS, (rows,), generator=source)
    which = torch.randint(0, followers, (rows, length), generator=source)
    for place in range(1, length):
        tokens[:, place] = following[tokens[:, place - 1], which[:, place]]
    return tokens


def topics(source: torch.Generator, rows: int, length: int, *, words: int = 6) -> Tensor:
    """Return rows (rows, length) about one topic each; a topic has few words of its own, and any of them identifies it."""
    topic = torch.randint(0, (WORDS - FIRST) // words, (rows, 1), generator=source)
    return FIRST + topic * words + torch.randint(0, words, (rows, length), generator=source)


def pictures(
    source: torch.Generator, rows: int, *, size: int = 32, classes: int = 10, noise: float = 0.7
) -> tuple[Tensor, Tensor]:
    """Return pictures (rows, 3, size, size) of mean 0 and deviation 1, and their classes: smooth patterns in noise."""
    patterns = torch.randn(classes, 3, 4, 4, generator=torch.Generator().manual_seed(7))
    patterns = torch.nn.functional.interpolate(patterns, size=(size, size), mode="bicubic")
    labels = torch.randint(0, classes, (rows,), generator=source)
    moves = torch.randint(-2, 3, (rows, 2), generator=source).tolist()
    clean = torch.stack([torch.roll(patterns[label], move, (1, 2)) for label, move in zip(labels.tolist(), moves, strict=True)])
    noisy = clean + noise * torch.randn(clean.shape, generator=source)
    return (noisy - noisy.mean()) / noisy.std(), labels


def discs(source: torch.Generator, rows: int, *, size: int = 32) -> tuple[Tensor, Tensor]:
    """Return noisy pictures (rows, 1, size, size) of a disc, and its mask of 0 and 1."""
    centre = torch.rand(rows, 2, 1, 1, generator=source) * size * 0.6 + size * 0.2
    radius = torch.rand(rows, 1, 1, generator=source) * size * 0.15 + size * 0.1
    grid = torch.arange(size, dtype=torch.float)
    away = (grid[None, :, None] - centre[:, 0]) ** 2 + (grid[None, None, :] - centre[:, 1]) ** 2
    mask = (away < radius**2).float()[:, None]
    return mask * 1.5 - 0.3 + 0.6 * torch.randn(mask.shape, generator=source), mask


def table(source: torch.Generator, rows: int, *, features: int = 12) -> tuple[Tensor, Tensor]:
    """Return standardized features (rows, features) and a noisy target (rows, 1) that depends on them non-linearly."""
    x = torch.randn(rows, features, generator=source)
    weights = torch.randn(features, generator=torch.Generator().manual_seed(7))
    y = x @ weights + 2 * (x[:, 0] * x[:, 1]) + 3 * torch.sin(2 * x[:, 2]) + 0.3 * torch.randn(rows, generator=source)
    return x, ((y - y.mean()) / y.std())[:, None]
