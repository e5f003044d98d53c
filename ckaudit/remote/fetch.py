"""Updates the files of a copy: changed objects are fetched, several at once, and replaced atomically."""

import itertools
import os
import re
import shutil
import stat
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic
from typing import BinaryIO, NamedTuple, Protocol, TypeVar

from ckaudit.remote.cache import Kept, Slot, naming_cache
from ckaudit.remote.filesystem import is_gone, naming
from ckaudit.remote.storage import Entry, Storage

Progress = Callable[[int, int], None]

AT_ONCE = 16
"""Objects fetched in parallel."""

PIECE = 16 * 2**20
"""Bytes of a large object fetched per request."""

PIECES_AT_ONCE = 4

IN_MEMORY = 2**20
"""Size up to which an object is kept in memory until it is written: one thread writes all files, because many would block each
other."""

NOTED_EVERY = 5.0
"""Seconds after which fetched files are noted, so that they are not fetched again after the process is killed."""


READ_LATER = re.compile(r"analysis_checkpoint_[^/]*\.json(\.gz|\.zst)?")
"""Names of files that are read one after the other: they are fetched last, in the order of names."""


class Listing(NamedTuple):
    """The objects to fetch.

    Attributes:
        entries: The objects.
        is_file: Whether the address is one object, not a folder.
    """

    entries: list[Entry]
    is_file: bool


class Watcher(Protocol):
    """Is notified of the progress of an update."""

    def listed(self, names: Sequence[str], *, is_file: bool) -> None:
        """Note the files to fetch, of a folder or a single file; called again whenever something has changed."""
        ...

    def arrived(self, name: str) -> None:
        """Note that a file is complete."""
        ...


class Copy:
    """The copy of one address, locked.

    Attributes:
        fetched: Bytes fetched so far.
    """

    def __init__(self, slot: Slot, storage: Storage, progress: Progress | None, watcher: Watcher | None = None) -> None:
        """Create the copy of a slot in the cache, from the storage of its address."""
        self.slot, self.storage, self.progress, self.watcher = slot, storage, progress, watcher
        self.state = slot.read_state()
        self.fetched = 0
        self._numbers = itertools.count()

    def update(self, listing: Listing) -> str:
        """Update the files.

        Returns:
            An object that changed or vanished while it was fetched; empty: none did.

        Raises:
            UnreadableError: If an object cannot be read, or the cache cannot be written.
        """
        local_files = self._there(listing)
        missing = [entry for entry in listing.entries if not self._is_current(entry, local_files.get(entry.name))]
        missing.sort(key=lambda entry: READ_LATER.fullmatch(entry.name) is not None)
        if self.watcher is not None:
            self.watcher.listed([entry.name for entry in missing], is_file=listing.is_file)
        done, astir, noted = len(listing.entries) - len(missing), "", monotonic()
        arriving = map_unordered(lambda entry: self._fetched(entry, listing), missing, threads=AT_ONCE)
        try:
            for entry, what in arriving:
                done += 1
                if what is None:
                    astir = entry.name
                else:
                    kept = self._put(entry, what, listing)
                    self.state.files[entry.name] = kept
                    self.fetched += kept.size
                    if self.watcher is not None:
                        self.watcher.arrived(entry.name)
                if self.progress is not None:
                    self.progress(done, len(listing.entries))
                if monotonic() - noted > NOTED_EVERY:
                    self._note()
                    noted = monotonic()
        finally:
            arriving.close()
            self._note()
        return astir

    def _note(self) -> None:
        with naming_cache(self.slot.cache):
            self.slot.write_state(self.state)

    def _there(self, listing: Listing) -> dict[str, os.stat_result]:
        """Delete everything that is not in the listing, and return the remaining files by name."""
        names = {entry.name for entry in listing.entries}
        copy, state = self.slot.copy, self.state
        with naming_cache(self.slot.cache):
            for stray in self.slot.folder.glob("partial-*"):
                stray.unlink(missing_ok=True)
            if copy.is_dir() == listing.is_file or not state.files:
                _remove(copy)
            local_files = {copy.name: copy.stat()} if copy.is_file() else dict(_files_below(copy))
            for name in local_files.keys() - names:
                self._path(name, listing).unlink(missing_ok=True)
            if not listing.is_file:
                copy.mkdir(parents=True, exist_ok=True, mode=0o700)
        state.address, state.is_file = self.slot.address, listing.is_file
        state.files = {name: kept for name, kept in state.files.items() if name in names and name in local_files}
        return local_files

    def _is_current(self, entry: Entry, local_file: os.stat_result | None) -> bool:
        kept = self.state.files.get(entry.name)
        if kept is None or local_file is None or not entry.version or kept.version != entry.version:
            return False
        return (kept.size, kept.time) == (local_file.st_size, local_file.st_mtime_ns) and entry.size in (None, kept.size)

    def _path(self, name: str, listing: Listing) -> Path:
        return self.slot.copy if listing.is_file else self.slot.copy / name

    def _fetched(self, entry: Entry, listing: Listing) -> bytes | Path | None:
        """Fetch one object: its bytes, or the file that a larger one was written to; None if it changed or vanished meanwhile."""
        address = self.slot.address.rstrip("/") + ("" if listing.is_file else f"/{entry.name}")
        with naming(address):
            try:
                return self._in_a_file(entry) if entry.size is None or entry.size > IN_MEMORY else self._in_memory(entry)
            except FileNotFoundError as error:
                if not is_gone(error):
                    raise
                return None

    def _in_memory(self, entry: Entry) -> bytes | None:
        data = self.storage.read(entry, 0, None)
        return data if entry.size in (None, len(data)) else None

    def _in_a_file(self, entry: Entry) -> Path | None:
        partial = self._partial()
        try:
            complete = self._write(entry, partial)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        if not complete:
            partial.unlink(missing_ok=True)
        return partial if complete else None

    def _partial(self) -> Path:
        return self.slot.folder / f"partial-{os.getpid()}-{next(self._numbers)}"

    def _put(self, entry: Entry, what: bytes | Path, listing: Listing) -> Kept:
        """Put a fetched object in its place, and return the facts of its file."""
        partial, target = what if isinstance(what, Path) else self._partial(), self._path(entry.name, listing)
        try:
            if not isinstance(what, Path):
                with self._opened(partial) as stream:
                    self._append(what, stream)
            with naming_cache(self.slot.cache):
                if entry.time:
                    os.utime(partial, (entry.time, entry.time))
                _move(partial, target)
                facts = target.stat()
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        return Kept(entry.version, facts.st_size, facts.st_mtime_ns)

    def _write(self, entry: Entry, partial: Path) -> bool:
        """Write an object's bytes to a file, and tell whether the object still has the listed version."""
        if entry.size is not None and entry.size > PIECE:
            with self._opened(partial) as stream:
                self._write_pieces(entry, entry.size, stream)
            now = self.storage.find_entry(entry.path)
            return now is not None and (now.version, now.size) == (entry.version, entry.size)
        data = self._in_memory(entry)
        if data is None:
            return False
        with self._opened(partial) as stream:
            self._append(data, stream)
        return True

    def _opened(self, partial: Path) -> BinaryIO:
        with naming_cache(self.slot.cache):
            return partial.open("wb", buffering=0)

    def _append(self, data: bytes, stream: BinaryIO) -> None:
        with naming_cache(self.slot.cache):
            rest = memoryview(data)
            while rest:  # unbuffered, so that a full disk raises here, not in `close`
                rest = rest[os.write(stream.fileno(), rest) :]

    def _write_pieces(self, entry: Entry, size: int, stream: BinaryIO) -> None:
        """Write a large object, several pieces at a time."""
        starts = range(0, size, PIECE)
        with ThreadPoolExecutor(PIECES_AT_ONCE, thread_name_prefix="piece") as pool:
            # only a few pieces ahead, to limit memory
            for first in range(0, len(starts), PIECES_AT_ONCE):
                some = starts[first : first + PIECES_AT_ONCE]
                for data in pool.map(lambda start: self.storage.read(entry, start, min(start + PIECE, size)), some):
                    self._append(data, stream)


def _move(partial: Path, target: Path) -> None:
    """Move a file to its name; the folder nearly always exists, so it is created only after a failure."""
    try:
        partial.replace(target)
    except FileNotFoundError:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.replace(target)


def _files_below(folder: Path, prefix: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Yield name and stat of each file below a folder; anything but files and our own folders is deleted."""
    if not folder.is_dir():
        return
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        facts = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(facts.st_mode):
            yield from _files_below(Path(entry), f"{prefix}{entry.name}/")
        elif stat.S_ISREG(facts.st_mode):
            yield prefix + entry.name, facts
        else:
            Path(entry).unlink()


def _remove(path: Path) -> None:
    """Delete a file or a folder, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# A thread pool whose results one thread takes: calls do not run far ahead of it.
Item = TypeVar("Item")
Result = TypeVar("Result")

AHEAD = 2
"""Calls per thread that are started before a result is taken, so that no thread is idle."""


def map_unordered(call: Callable[[Item], Result], items: Sequence[Item], *, threads: int) -> Generator[tuple[Item, Result]]:
    """Yield each item with the result of `call`, in the order of completion.

    An executor's futures would cost as much as a request for a small object. When the iterator is closed, calls in progress end
    first.

    Args:
        call: Called in one of the threads.
        items: Arguments of the calls.
        threads: Maximum number of threads.

    Raises:
        BaseException: The exception of a call.
    """
    waiting = iter(items)
    todo: SimpleQueue[Item | None] = SimpleQueue()
    done: SimpleQueue[tuple[Item, Result | None, BaseException | None]] = SimpleQueue()
    pool = [threading.Thread(target=_work, args=(call, todo, done), name="fetch") for _ in range(min(threads, len(items)))]
    for item in islice(waiting, AHEAD * len(pool)):
        todo.put(item)
    try:
        for thread in pool:
            thread.start()
        for _ in items:
            item, result, error = done.get()
            if error is not None:
                raise error
            for following in islice(waiting, 1):
                todo.put(following)
            yield item, result  # type: ignore[misc]  # there is a result where there is no error
    finally:
        _end(pool, todo)


def _work(
    call: Callable[[Item], Result],
    todo: "SimpleQueue[Item | None]",
    done: "SimpleQueue[tuple[Item, Result | None, BaseException | None]]",
) -> None:
    while (item := todo.get()) is not None:
        try:
            done.put((item, call(item), None))
        except BaseException as error:  # noqa: BLE001  raised again by who takes the results
            done.put((item, None, error))


def _end(pool: "Sequence[threading.Thread]", todo: "SimpleQueue[Item | None]") -> None:
    """Let each thread end after its current call."""
    while True:
        try:
            todo.get_nowait()
        except Empty:
            break
    for _ in pool:
        todo.put(None)
    for thread in pool:
        if thread.ident is not None:  # the thread was started
            thread.join()
