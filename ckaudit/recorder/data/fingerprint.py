"""A quick hash of a batch, the same on every device: a sum of its elements, each times a random number of its place."""

import sys
from functools import cache, lru_cache
from math import prod
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckaudit.recorder.stats.arrays import Array, dense, library

MOST = 2**16  # elements looked at; of more, one in so many
MASK = 2**64 - 1
WORDS = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}


def fingerprint(array: Array) -> Array | int:
    r"""Return a hash of an array's bits, an integer of 64 bits; on an accelerator as a tensor that is still there.

    $$\sum_i x_i r_i \bmod 2^{64}$$

    over the elements' bits as integers, with random odd r (multilinear hashing, Carter & Wegman 1979): two different arrays
    of one shape have the same hash once in 2^63. Of more than `MOST` elements a sample is taken, evenly spread.

    It costs a fifth of a cryptographic hash, and runs where the batch is, so that nothing has to wait for it.
    """
    if isinstance(array, np.ndarray):
        return _here(dense(array).reshape(-1))
    torch = library(array)
    is_plain = array.dtype == torch.int64 and type(array) is torch.Tensor  # tokens, as they mostly come
    values = (array if is_plain else dense(array)).reshape(-1)
    if values.shape[0] > MOST:
        values = values[:: -(-values.shape[0] // MOST)]
    if not is_plain:
        values = values.view(getattr(torch, WORDS[values.dtype.itemsize])).long()
    if values.is_cpu:
        return torch.dot(values, _weights_on("cpu", values.shape[0]))
    # CUDA has no such product of integers.
    return (values * _weights_on(values.device, values.shape[0])).sum()


def row_fingerprints(array: Array) -> Array:
    """Return the `fingerprint` of each row of an array (B, ...), where the array is, shape (B,), as integers of 64 bits."""
    rows = dense(array).reshape(len(array), -1)
    rows = rows[:, :: -(-rows.shape[1] // MOST)]
    if isinstance(rows, np.ndarray):
        return np.array([_here(row) for row in rows])
    torch = library(rows)
    if rows.dtype != torch.int64:
        rows = rows.contiguous().view(getattr(torch, WORDS[rows.dtype.itemsize])).long()
    return (rows * _weights_on(rows.device, rows.shape[1])).sum(1)


def name_of_tokens(tokens: Array) -> str:
    """Return `name_of` the `fingerprint` of a torch tensor of tokens, int64 in this process's memory, in few calls."""
    shape = tokens.shape
    weights, of_shape = _weights_for(shape)
    if weights is None:
        return name_of(int(fingerprint(tokens)), shape)
    return f"sum64:{tokens.reshape(-1).dot(weights).item() + of_shape & MASK:016x}"


def _here(values: NDArray[Any]) -> int:
    if values.dtype.itemsize not in WORDS:
        values = np.ascontiguousarray(values).view(np.uint8)
    values = values[:: max(1, -(-values.shape[0] // MOST))]
    words = values.view(WORDS[values.dtype.itemsize]).astype(np.int64, copy=False)
    return int(np.dot(words, _weights()[: len(words)]))


def name_of(number: int, shape: tuple[int, ...]) -> str:
    """Return the hash as the contract writes it, from `fingerprint` and the shape of what it is of.

    >>> name_of(-1, (2, 3))
    'sum64:4e68904c31b4d5e4'
    """
    return f"sum64:{number + _of_shape(shape) & MASK:016x}"


@lru_cache
def _of_shape(shape: tuple[int, ...]) -> int:
    return sum(map(mul, shape, map(int, _weights()[MOST:])))


@lru_cache(maxsize=8)
def _weights_for(shape: tuple[int, ...]) -> tuple[Array | None, int]:
    """Return what tokens of this shape are multiplied by, None where they are too many, and what is added for the shape."""
    count = prod(shape)
    return None if count > MOST else _weights_on("cpu", count), _of_shape(shape)


@lru_cache(maxsize=8)
def _weights_on(device: Any, count: int) -> Array:
    return sys.modules["torch"].as_tensor(_weights()[:count], device=device)


@cache
def _weights() -> NDArray[np.int64]:
    """Return `MOST` and a few odd numbers without pattern, shape (N,): SplitMix64 of their places (Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        mixed = np.arange(1, MOST + 65, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed ^ (mixed >> np.uint64(31)) | np.uint64(1)).view(np.int64)
