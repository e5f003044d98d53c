"""Which contents are held out: decided by their words alone, so that training and held-out lines never share one."""

from collections.abc import Callable
from random import Random
from typing import TypeVar
from zlib import crc32

Content = TypeVar("Content", bound=tuple[object, ...])


def is_held_out(*content: object, share: int = 10) -> bool:
    """Whether training never sees this content: one in `share`, by a checksum of its words."""
    return crc32("|".join(map(str, content)).encode()) % share == 0


def choose(rng: Random, make: Callable[[Random], Content], *, held: bool) -> Content:
    """Draw contents until one is held out, or is not."""
    while is_held_out(*(content := make(rng))) != held:
        pass
    return content
