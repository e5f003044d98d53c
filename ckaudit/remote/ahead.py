"""A run that is read while the rest of it is still fetched: a process of its own fetches, and says of each file when it is there.

Threads would take turns with the reader at every call of the system. The process is a fork, which has nothing to load, and begins
before the command has loaded anything itself.
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
"""What a pipe takes of a process that is ahead: names of some ten thousand files."""


class Listed(Struct, frozen=True, tag=True):
    """What is to be fetched.

    Attributes:
        first: Files that are needed before the command begins.
        later: Files that it waits for one by one.
    """

    first: list[str]
    later: list[str]


class Arrived(Struct, frozen=True, tag=True):
    """A file is there."""

    name: str


class Failed(Struct, frozen=True, tag=True):
    """Nothing more will come.

    Attributes:
        is_usage: Whether the request itself is wrong.
        message: What failed; empty: what was listed is no longer so.
        hint: What to do about it.
    """

    is_usage: bool = False
    message: str = ""
    hint: str = ""


Message = Listed | Arrived | Failed
_DECODER = msgspec.json.Decoder(Message)


def copy_ahead(uri: str, *, progress: Progress | None = None, meanwhile: Callable[[], object] = lambda: None) -> Path:
    """Return where a run can be read on this machine, as `local_copy` does, while its checkpoints are still on their way.

    Who reads them waits for each by `arrivals.wait_for`.

    Args:
        uri: A path, or the address of an object or of what lies below it.
        progress: Called with objects there and objects in all, as long as nothing can be read.
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
    # Of other threads a fork would have the locks, and not the threads that give them back.
    try:
        return sys.platform == "linux" and len([*Path("/proc/self/task").iterdir()]) == 1
    except OSError:
        return False


class ProcessArrivals:
    """Files that a process of its own fetches into a copy.

    Attributes:
        awaited: The names of those that are still to come.
    """

    def __init__(self, uri: str) -> None:
        """Start the process."""
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
        """Return the copy, once all is there that is needed first.

        Raises:
            ReadAgainError: If the process ended.
            CkauditError: Where nothing can be fetched.
        """
        listed = self._next()
        if not isinstance(listed, Listed):
            self._break_off(listed)
        self.awaited.update(listed.first, listed.later)
        hold(self._slot)  # before the process ends, which holds it by now: no other may give the copy up in between
        self._allow_end()
        for done, name in enumerate(listed.first, 1):
            self.wait_for(name)
            if progress is not None:
                progress(done, len(listed.first) + len(listed.later))
        expect(self._slot.copy, self)
        remember(self._slot.copy, self._slot.address)
        return self._slot.copy

    def wait_for(self, name: str) -> None:
        """Return once a file is there; see `Arrivals`."""
        while name in self.awaited:
            message = self._next()
            if not isinstance(message, Arrived):
                self._break_off(message)
            self.awaited.discard(message.name)

    def end(self, *, needed: bool) -> None:
        """Let the process come to its end where what it fetches is `needed`, or end it; see `Arrivals`."""
        if not needed:
            os.kill(self._process, signal.SIGTERM)  # until it is waited for below, its number is its own
        self._allow_end()
        for _ in self._messages:
            pass
        self._messages.close()
        os.close(self._allow)
        os.waitpid(self._process, 0)

    def _allow_end(self) -> None:
        with suppress(BrokenPipeError):  # it failed, and ended
            os.write(self._allow, b".")

    def _next(self) -> Message | None:
        """Return what the process says next; None: it ended."""
        line = self._messages.readline()
        return _DECODER.decode(line) if line.endswith(b"\n") else None

    def _break_off(self, message: Message | None) -> NoReturn:
        if isinstance(message, Failed) and message.message:
            kind = UsageError if message.is_usage else UnreadableError
            raise kind(message.message, hint=message.hint)
        raise ReadAgainError(self._slot.address)


# What the process does.
class _Teller:
    """Tells through a pipe what is listed and what is there."""

    def __init__(self, pipe: int) -> None:
        self._pipe, self._has_listed = pipe, False

    def listed(self, names: Sequence[str], *, is_file: bool) -> None:
        """Tell what is to be fetched; a second listing means that the first was no longer so."""
        if self._has_listed:
            self.tell(Failed())
            return
        self._has_listed = True
        later = [name for name in names if not is_file and READ_LATER.fullmatch(name)]
        self.tell(Listed(first=[name for name in names if name not in {*later}], later=later))

    def arrived(self, name: str) -> None:
        """Tell that a file is there."""
        self.tell(Arrived(name))

    def tell(self, message: Message) -> None:
        """Write a message; where nobody listens any more this raises, which ends the fetching."""
        rest = memoryview(msgspec.json.encode(message) + b"\n")
        while rest:
            rest = rest[os.write(self._pipe, rest) :]


def _fetch(uri: str, pipe: int, allowed: int) -> NoReturn:
    """Fetch what lies at an address, tell what becomes of it, and end the process."""
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
        os._exit(0)  # nothing of the process that this is a copy of is to be flushed, closed or cleared up


def _widen(pipe: int) -> None:
    import fcntl

    with suppress(OSError, AttributeError):  # the user has too many of them
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
