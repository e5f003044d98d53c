"""Reads a run while the rest of it is still fetched: a child process fetches the files and reports each one that is complete.

Threads would compete with the reader for the interpreter lock at every system call. The child is forked, so it has nothing to
load, and it starts before the command has loaded anything itself.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NoReturn

import msgspec
from msgspec import Struct

from ckaudit.errors import CkauditError, UnreadableError, UsageError
from ckaudit.remote.addresses import remember
from ckaudit.remote.arrivals import ReadAgainError, expect, is_expected
from ckaudit.remote.cache import hold
from ckaudit.remote.fetch import READ_LATER, Progress
from ckaudit.remote.location import is_uri, scheme_of
from ckaudit.remote.mirror import local_copy, slot_of

PIPE_BYTES = 2**20
"""Pipe buffer for a child that is ahead of the reader: names of some ten thousand files."""


class Listed(Struct, frozen=True, tag=True):
    """The list of files to fetch.

    Attributes:
        first: Files needed before the command begins.
        later: Files that the command waits for one by one.
    """

    first: list[str]
    later: list[str]


class Arrived(Struct, frozen=True, tag=True):
    """A file is complete."""

    name: str


class Failed(Struct, frozen=True, tag=True):
    """The fetching has ended with a failure.

    Attributes:
        is_usage: Whether the request itself is invalid.
        message: What failed; empty: the listing has changed.
        hint: What to do about it.
    """

    is_usage: bool = False
    message: str = ""
    hint: str = ""


Message = Listed | Arrived | Failed
_DECODER = msgspec.json.Decoder(Message)


def copy_ahead(uri: str, *, progress: Progress | None = None, meanwhile: Callable[[], object] = lambda: None) -> Path:
    """Return the local path of a run, as `local_copy` does, while its checkpoints are still being fetched.

    A reader waits for each of them by `arrivals.wait_for`.

    Args:
        uri: A path, or the address of an object or a folder.
        progress: Called with the number of fetched objects and of all objects, as long as nothing can be read.
        meanwhile: Called while the address is looked up.

    Raises:
        CkauditError: As `local_copy` does.
    """
    if not is_uri(uri) or scheme_of(uri) == "file" or not _can_fork():
        return local_copy(uri, progress=progress)
    if is_expected(copy := slot_of(uri).copy):
        return copy
    arrivals = ProcessArrivals(uri)
    try:
        meanwhile()
        return arrivals.begin(progress)
    except ReadAgainError:
        arrivals.end(needed=True)
        return local_copy(uri, progress=progress)
    except BaseException:
        arrivals.end(needed=False)
        raise


def _can_fork() -> bool:
    # A fork of a process with other threads would inherit their locks, but not the threads that release them.
    try:
        return sys.platform == "linux" and len([*Path("/proc/self/task").iterdir()]) == 1
    except OSError:
        return False


class ProcessArrivals:
    """Files that a child process fetches into a copy.

    Attributes:
        awaited: The names of pending files.
    """

    def __init__(self, uri: str) -> None:
        """Start the child process."""
        self.awaited: set[str] = set()
        self._slot = slot_of(uri)
        read_end, write_end = os.pipe()
        allowed, self._allow = os.pipe()
        self._process = os.fork()
        if not self._process:
            os.close(read_end)
            os.close(self._allow)
            _fetch(uri, write_end, allowed)
        os.close(write_end)
        os.close(allowed)
        self._messages: BinaryIO = os.fdopen(read_end, "rb")

    def begin(self, progress: Progress | None) -> Path:
        """Return the copy, once all files needed first are complete.

        Raises:
            ReadAgainError: If the child ended.
            CkauditError: If nothing can be fetched.
        """
        listed = self._next()
        if not isinstance(listed, Listed):
            self._break_off(listed)
        self.awaited.update(listed.first, listed.later)
        hold(self._slot)  # while the child still holds the copy, so that no other process can evict it in between
        self._allow_end()
        for done, name in enumerate(listed.first, 1):
            self.wait_for(name)
            if progress is not None:
                progress(done, len(listed.first) + len(listed.later))
        expect(self._slot.copy, self)
        remember(self._slot.copy, self._slot.address)
        return self._slot.copy

    def wait_for(self, name: str) -> None:
        """Return once a file is complete; see `Arrivals`."""
        while name in self.awaited:
            message = self._next()
            if not isinstance(message, Arrived):
                self._break_off(message)
            self.awaited.discard(message.name)

    def end(self, *, needed: bool) -> None:
        """Wait for the child to finish if its files are `needed`, else terminate it; see `Arrivals`."""
        if not needed:
            os.kill(self._process, signal.SIGTERM)  # its process id is valid until waitpid below
        self._allow_end()
        for _ in self._messages:
            pass
        self._messages.close()
        os.close(self._allow)
        os.waitpid(self._process, 0)

    def _allow_end(self) -> None:
        with suppress(BrokenPipeError):  # it failed and ended
            os.write(self._allow, b".")

    def _next(self) -> Message | None:
        """Return the child's next message; None: it has ended."""
        line = self._messages.readline()
        return _DECODER.decode(line) if line.endswith(b"\n") else None

    def _break_off(self, message: Message | None) -> NoReturn:
        if isinstance(message, Failed) and message.message:
            kind = UsageError if message.is_usage else UnreadableError
            raise kind(message.message, hint=message.hint)
        raise ReadAgainError(self._slot.address)


# The code of the child process.
class _Teller:
    """Reports through a pipe which files are listed and complete."""

    def __init__(self, pipe: int) -> None:
        self._pipe, self._has_listed = pipe, False

    def listed(self, names: Sequence[str], *, is_file: bool) -> None:
        """Report the files to fetch; a second listing means that the first one has changed."""
        if self._has_listed:
            self.tell(Failed())
            return
        self._has_listed = True
        later = [name for name in names if not is_file and READ_LATER.fullmatch(name)]
        self.tell(Listed(first=[name for name in names if name not in {*later}], later=later))

    def arrived(self, name: str) -> None:
        """Report that a file is complete."""
        self.tell(Arrived(name))

    def tell(self, message: Message) -> None:
        """Write a message; without a reader this raises, which ends the fetching."""
        rest = memoryview(msgspec.json.encode(message) + b"\n")
        while rest:
            rest = rest[os.write(self._pipe, rest) :]


def _fetch(uri: str, pipe: int, allowed: int) -> NoReturn:
    """Fetch the objects at an address, report progress, and end the process."""
    try:
        _widen(pipe)
        teller = _Teller(pipe)
        try:
            local_copy(uri, watcher=teller)
        except CkauditError as error:
            teller.tell(Failed(isinstance(error, UsageError), str(error), error.hint))
        else:
            os.read(allowed, 1)
    finally:
        os._exit(0)  # nothing inherited from the parent may be flushed, closed or cleaned up


def _widen(pipe: int) -> None:
    import fcntl

    with suppress(OSError, AttributeError):  # the user has too many pipes
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
