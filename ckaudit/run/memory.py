"""How much memory a run may take: columns beyond that stand on disk, where the system reads them as they are needed."""

import os
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, TypeVar

import numpy as np
from msgspec.structs import replace
from numpy.typing import DTypeLike, NDArray

from ckaudit.run.series import Series

T = TypeVar("T")

SHARE = 0.25
"""Of the memory that is free: columns that were read take as much, columns computed from them too, and a rule needs the rest."""

LARGE = 2**18
"""Bytes from which a result counts: thousands of smaller ones are kept."""

CGROUPS = Path("/sys/fs/cgroup")
"""Where Linux says what a container, or a job of a cluster's scheduler, may use."""

_limit: ContextVar[int | None] = ContextVar("memory_limit", default=None)


@contextmanager
def memory_limit(max_bytes: int | None) -> Iterator[None]:
    """Read and judge runs within so many bytes, as far as their columns go; None: within what the machine has free."""
    token = _limit.set(max_bytes)
    try:
        yield
    finally:
        _limit.reset(token)


def column_budget() -> int:
    """Return how many bytes the columns of a run may take before they go to disk."""
    limit = _limit.get()
    return int(SHARE * (free_memory() if limit is None else limit))


def free_memory() -> int:
    """Return the bytes that this process could still have: of the machine, or of the container if that has less."""
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        known = Path("/proc/meminfo").read_text("ascii").partition("MemAvailable:")[2].split()
        free = int(known[0]) * 1024 if known else free
    except (OSError, ValueError):  # not every system tells
        free = 2**32
    return min([free, *_container_limits()])


def _container_limits() -> Iterator[int]:
    """Yield the limits of the groups that this process is in, and of those around them."""
    try:
        groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines()]
    except OSError:  # no such system
        return
    for _, controllers, name in groups:
        root, file = (CGROUPS / "memory", "memory.limit_in_bytes") if controllers else (CGROUPS, "memory.max")
        if controllers and "memory" not in controllers.split(","):
            continue
        own = root / name.lstrip("/")
        for folder in [own, *own.parents][: len(own.parts) - len(root.parts) + 1]:
            with suppress(OSError, ValueError):  # no limit, or "max"
                yield int((folder / file).read_text("ascii"))


def scratch_file() -> IO[bytes]:
    """Return a file without a name, which is deleted with the last object that holds it."""
    return TemporaryFile(prefix="ckaudit-")


def array_on_disk(shape: tuple[int, ...], dtype: DTypeLike, file: IO[bytes] | None = None) -> NDArray[Any]:
    """Return an array whose pages the system may put aside.

    Args:
        shape: Its shape.
        dtype: Its element type.
        file: What holds its values already, which writing to the array does not change; None: a new one, of zeros.
    """
    if 0 in shape:  # an empty file cannot be mapped
        return np.empty(shape, dtype)
    if file is None:
        with scratch_file() as empty_file:  # what is mapped stays when its file is closed
            return np.memmap(empty_file, dtype, "w+", shape=shape)
    file.flush()
    return np.memmap(file, dtype, "c", shape=shape)


class ResultCache:
    """What was computed of a run, by key; the arrays of large results stand on disk once memory is short."""

    def __init__(self) -> None:
        """Begin empty."""
        self._results: dict[Hashable, Any] = {}
        self._bytes = 0

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the result under a key, computed where it is not there."""
        if key not in self._results:
            self._results[key] = self._fitted(make())
        return self._results[key]  # type: ignore[no-any-return]

    def _fitted(self, result: T) -> T:
        """Return a result whose arrays stand where there is room for them."""
        if not isinstance(result, Series) or result.values.nbytes < LARGE or isinstance(result.values, np.memmap):
            return result
        self._bytes += result.values.nbytes
        # below the first no machine is short, and nobody need ask
        if self._bytes < 64 * LARGE or self._bytes < column_budget():
            return result
        self._bytes -= result.values.nbytes
        return replace(result, values=_copied_to_disk(result.values), recorded=_copied_to_disk(result.recorded))


def _copied_to_disk(values: NDArray[Any]) -> NDArray[Any]:
    copy = array_on_disk(values.shape, values.dtype)
    copy[...] = values
    return copy
