"""Memory budget of a run: columns beyond it are stored on disk, and the system pages them in as needed."""

import mmap
import os
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import DTypeLike, NDArray

T = TypeVar("T")

SHARE = 0.25
"""Share of the free memory that columns may take. Columns computed from them take as much again, and rules need the rest."""

LARGE = 2**18
"""Bytes from which a result counts as large; smaller ones are kept by the thousand."""

MOST_KEPT = 2**26
"""Bytes of large results that stay in memory however much is free, and limit for the disk results paged in at a time."""

CGROUPS = Path("/sys/fs/cgroup")
"""Where Linux lists the memory limits of a container or a cluster job."""

_limit: ContextVar[int | None] = ContextVar("memory_limit", default=None)


@contextmanager
def memory_limit(max_bytes: int | None) -> Iterator[None]:
    """Limit the memory that the columns of runs may take; None means what the machine has free."""
    token = _limit.set(max_bytes)
    try:
        yield
    finally:
        _limit.reset(token)


def column_budget() -> int:
    """Return how many bytes the columns of a run may take before they move to disk."""
    limit = _limit.get()
    return int(SHARE * (free_memory() if limit is None else limit))


def free_memory() -> int:
    """Return the bytes that this process can still allocate: free memory of the machine, or the container's limit if lower."""
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        known = Path("/proc/meminfo").read_text("ascii").partition("MemAvailable:")[2].split()
        free = int(known[0]) * 1024 if known else free
    except (OSError, ValueError):  # not every system has these
        free = 2**32
    return min([free, *_container_limits()])


def _container_limits() -> Iterator[int]:
    """Yield the memory limits of the process's control groups and their parents."""
    try:
        groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines()]
    except OSError:  # no control groups
        return
    for _, controllers, name in groups:
        root, file = (CGROUPS / "memory", "memory.limit_in_bytes") if controllers else (CGROUPS, "memory.max")
        if controllers and "memory" not in controllers.split(","):
            continue
        own = root / name.lstrip("/")
        for folder in [own, *own.parents][: len(own.parts) - len(root.parts) + 1]:
            with suppress(OSError, ValueError):  # no limit, or the word "max"
                yield int((folder / file).read_text("ascii"))


def scratch_file() -> IO[bytes]:
    """Return an unnamed temporary file, which is deleted with the last object that holds it."""
    return TemporaryFile(prefix="ckaudit-")


def array_on_disk(shape: tuple[int, ...], dtype: DTypeLike, file: IO[bytes] | None = None) -> NDArray[Any]:
    """Return an array whose pages the system may swap out to a file.

    Args:
        shape: Its shape.
        dtype: Its element type.
        file: Holds the values; writing to the array does not change the file. None: a new file of zeros.
    """
    if 0 in shape:  # an empty file cannot be mapped
        return np.empty(shape, dtype)
    if file is None:
        with scratch_file() as empty_file:  # what is mapped stays when its file is closed
            return np.memmap(empty_file, dtype, "w+", shape=shape)
    file.flush()
    return np.memmap(file, dtype, "c", shape=shape)


class ResultCache:
    """Results computed from a run, by key. Once large results exceed the memory budget, their arrays move to disk."""

    def __init__(self) -> None:
        """Begin empty."""
        self._results: dict[Hashable, Any] = {}
        self._bytes = 0
        self._kept: dict[int, NDArray[Any]] = {}
        self._on_disk: dict[Hashable, list[np.memmap[Any, Any]]] = {}
        self._recent: dict[Hashable, int] = {}

    def get(self, key: Hashable, make: Callable[[], T], *, held: Callable[[], Iterable[NDArray[Any]]] = tuple) -> T:
        """Return the result of a key, and compute it if it is missing.

        Args:
            key: Identifies the result.
            make: Computes the result.
            held: Returns arrays that are in memory anyway; views of them do not count.
        """
        if key not in self._results:
            self._results[key] = self._fitted(key, make(), held)
        if key in self._on_disk:
            self._use(key)
        return self._results[key]  # type: ignore[no-any-return]

    def _fitted(self, key: Hashable, result: T, held: Callable[[], Iterable[NDArray[Any]]]) -> T:
        """Return a result whose arrays are in memory, or on disk if they exceed the budget."""
        arrays = _large_arrays(result)
        if not arrays:
            return result
        known = self._kept.keys() | {id(_owner(array)) for array in held()}
        own = {name: array for name, array in arrays.items() if id(_owner(array)) not in known}
        size = sum(array.nbytes for array in own.values())
        # any machine has the first amount free, so the budget, which is slow to read, is not asked for
        if not own or self._bytes + size < 64 * LARGE or self._bytes + size < min(MOST_KEPT, column_budget()):
            self._bytes += size
            self._kept |= {id(_owner(array)): _owner(array) for array in own.values()}
            return result
        try:
            on_disk = {name: _written(array) for name, array in own.items()}
        except OSError:  # no room on disk either
            return result
        self._on_disk[key] = [*on_disk.values()]
        self._kept |= {id(array): array for array in on_disk.values()}
        return replace(result, **on_disk)  # type: ignore[type-var]  # only a struct has arrays

    def _use(self, key: Hashable) -> None:
        """Release the pages of the least recently used disk results if too many are in memory."""
        self._recent.pop(key, None)
        self._recent[key] = sum(array.nbytes for array in self._on_disk[key])
        while len(self._recent) > 1 and sum(self._recent.values()) > MOST_KEPT:
            oldest = next(iter(self._recent))
            del self._recent[oldest]
            for array in self._on_disk[oldest]:
                _let_go(array)


def _large_arrays(result: Any) -> dict[str, NDArray[Any]]:
    """Return the array fields of a result that is a struct; an empty dict if they are small."""
    if not isinstance(result, Struct):
        return {}
    arrays = {name: array for name in result.__struct_fields__ if isinstance(array := getattr(result, name), np.ndarray)}
    return arrays if sum(array.nbytes for array in arrays.values()) >= LARGE else {}


def _owner(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array that owns the memory of a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _written(values: NDArray[Any]) -> "np.memmap[Any, Any]":
    """Return a copy of an array on disk."""
    if not values.size:  # an empty file cannot be mapped
        return values  # type: ignore[return-value]
    with scratch_file() as file:  # what is mapped stays when its file is closed
        np.ascontiguousarray(values).tofile(file)
        file.flush()
        return np.memmap(file, values.dtype, "r", shape=values.shape)


def _let_go(array: "np.memmap[Any, Any]") -> None:
    """Release the pages of an array on disk from memory; they are read again when needed."""
    pages = getattr(array, "_mmap", None)
    if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)
