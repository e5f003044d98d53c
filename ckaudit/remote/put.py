"""Writing to an address: objects are written atomically, and errors are explained."""

import os
import random
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from typing import Any

from ckaudit.errors import CkauditError, UsageError
from ckaudit.remote.fast_s3 import FastS3, serves
from ckaudit.remote.filesystem import CREDENTIALS
from ckaudit.remote.location import kind_of, shown
from ckaudit.remote.storage import AnyStorage, Entry

OBJECT_STORES = ("s3", "gs", "az", "memory")
"""Kinds of storage in which an object is replaced atomically."""

_QUERY = re.compile(r"(https?://[^\s?'\"]*)\?[^\s'\"]*")  # the query may be signed

_LOST = re.compile(
    r"Error performing \w+ (?P<where>\S+) in .* - (?P<why>HTTP error.*|.*status code: (?:5\d\d|408|429).*)", re.DOTALL
)
"""obstore's message for a server that is unreachable or busy."""

MAX_FILES = 1_000_000
"""Maximum number of files listed of a run."""

LONGEST_PAUSE = 60.0
"""Maximum seconds between two attempts while a training runs."""


class RemoteFolder:
    """The folder of an address, with the operations for writing a run.

    S3 is written through obstore, which costs the training a tenth of a Python client. If it fails, fsspec's client is used, or
    explains the error.

    Args:
        address: The address; no request is made before a method is called.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._is_made = kind_of(address) in OBJECT_STORES

    @cached_property
    def _fast(self) -> FastS3 | None:
        with suppress(Exception):  # after any failure the other client is used
            return FastS3(self.address) if serves(self.address) else None
        return None

    @cached_property
    def _slow(self) -> AnyStorage:
        if kind_of(self.address) == "http":
            raise UsageError(f"{shown(self.address)}: nothing can be written to the web", hint="Name a bucket, as s3://...")
        return AnyStorage(self.address)

    def sizes(self) -> dict[str, int]:
        """Return the files directly in the folder by name, with their sizes; empty if there is no such folder."""
        try:
            entries = (self._fast or self._slow).entries(MAX_FILES)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        return {entry.name: entry.size or 0 for entry in entries if entry.name and "/" not in entry.name}

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes of a file from `start` up to `end`; None: to its end.

        Raises:
            FileNotFoundError: If there is no such file.
        """
        if self._fast is not None:
            return self._fast.read(Entry(name, self._key(name), None, "", 0.0), start, end)
        return self._slow.read(Entry(name, self._path(name), None, "", 0.0), start, end)

    def put(self, name: str, data: bytes) -> None:
        """Write a file; a reader sees either the old or the new one."""
        if self._by_fast(lambda store: store.put(self._key(name), data)):
            return
        filesystem, path = self._slow.filesystem, self._path(name)
        if not self._is_made:
            filesystem.makedirs(self._root(), exist_ok=True)
            self._is_made = True
        if kind_of(self.address) in OBJECT_STORES:
            filesystem.pipe_file(path, data)
            return
        temporary = self._path(f".{name}.tmp-{os.getpid()}")
        filesystem.pipe_file(temporary, data)
        filesystem.mv(temporary, path)

    def remove(self, name: str) -> None:
        """Delete a file, if it exists."""
        if self._by_fast(lambda store: store.delete(self._key(name))):
            return
        if self._slow.filesystem.exists(self._path(name)):
            self._slow.filesystem.rm_file(self._path(name))

    def _by_fast(self, call: Callable[[Any], Any]) -> bool:
        """Let the fast client make a call, and tell whether it succeeded.

        Raises:
            ConnectionError: If the server is unreachable or busy: the other client would fail too.
        """
        if self._fast is None:
            return False
        try:
            call(self._fast.store)
        except Exception as error:  # noqa: BLE001  whatever else it is, the other client says it
            if lost := _LOST.search(str(error).partition("Debug source")[0]):
                raise ConnectionError(f"{lost['where']}: {' '.join(lost['why'].split())}") from None
            return False
        return True

    def _key(self, name: str) -> str:
        key = self._fast.key if self._fast else ""
        return f"{key}/{name}" if key else name

    def _path(self, name: str) -> str:
        return f"{self._root()}/{name}"

    def _root(self) -> str:
        return self._slow.root.rstrip("/")


class Refused(Exception):  # noqa: N818  it is an answer, not a fault of the program
    """A permanent refusal: retries fail until somebody changes something."""


def in_words(error: BaseException, address: str) -> str:
    """Return why a write failed, and where to look, in one line."""
    words = " ".join(str(error).split()).replace(address, shown(address))
    words = _QUERY.sub(r"\1", words)[:300].rstrip(".")
    if isinstance(error, Refused):
        return words
    if isinstance(error, CkauditError):
        return f"{words} ({error.hint})" if error.hint else words
    what = f"{type(error).__name__}: {words}" if words else type(error).__name__
    is_denied = isinstance(error, PermissionError) or "Credentials" in type(error).__name__
    where = CREDENTIALS.get(kind_of(address), "").rstrip(".")
    return f"{what}. {where}" if is_denied and where else what


def pauses(longest: float = LONGEST_PAUSE, *, first: float = 1.0) -> Iterator[float]:
    """Yield the pause before each further attempt: twice as long each time, with random jitter down to half."""
    pause = first
    while True:
        yield random.uniform(pause / 2, pause)  # noqa: S311  so that many trainings do not come back at once
        pause = min(2 * pause, longest)
