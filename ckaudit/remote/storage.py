"""The objects below an address, and their bytes, through the clients of fsspec: one interface for all kinds of storage."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import unquote

from ckaudit.remote.filesystem import ANSWER_SECONDS, ATTEMPTS, REPEAT_THEMSELVES, is_gone, open_filesystem, retried
from ckaudit.remote.location import kind_of, shown

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

MAX_DEPTH = 8
"""Maximum depth of folders listed on the web, where links can form cycles."""


PARTIAL = re.compile(r"(?:.*/)?\.[^/]+\.tmp-\d+")
"""Names of files that are being written, in storage without atomic writes."""


class Entry(NamedTuple):
    """One object.

    Attributes:
        name: Name relative to the address; the last component of the address if it is the address itself.
        path: Name for the client.
        size: Size in bytes; None: unknown.
        version: A value that changes with the content, such as an ETag; empty: unknown.
        time: Unix time of the last write; 0: unknown.
    """

    name: str
    path: str
    size: int | None
    version: str
    time: float


class Storage(Protocol):
    """The objects below one address."""

    def root_entry(self) -> Entry | None:
        """Return the address as one object; None if it is none."""
        ...

    def entries(self, limit: int) -> list[Entry]:
        """Return the objects below the address, at most `limit` or a few more."""
        ...

    def find_entry(self, path: str) -> Entry | None:
        """Return the current state of an object, by its name for the client; None if it no longer exists."""
        ...

    def read(self, entry: Entry, start: int, end: int | None) -> bytes:
        """Return the bytes of an object from `start` up to `end`; None: to its end."""
        ...


class AnyStorage:
    """The objects below one address, through fsspec."""

    def __init__(self, uri: str) -> None:
        """Open the client.

        Raises:
            UsageError: If such addresses are not supported.
            UnreadableError: If the client is not installed.
        """
        self.uri = uri
        self.filesystem, self.root = open_filesystem(uri)
        repeats = kind_of(uri) in REPEAT_THEMSELVES
        self._attempts = 1 if repeats else ATTEMPTS
        self._patience = {"timeout": ANSWER_SECONDS} if repeats else {}

    def root_entry(self) -> Entry | None:
        """Return the address as one object; None if it is none."""
        return self.find_entry(self.root)

    def find_entry(self, path: str) -> Entry | None:
        """Return the current state of an object, by its name for the client; None if it no longer exists."""
        try:
            facts = retried(lambda: self.filesystem.info(path, **self._patience), attempts=self._attempts)
        except FileNotFoundError as error:
            if is_gone(error):
                return None
            raise
        return None if facts["type"] != "file" or _is_page(facts) else _entry(last_name(self.uri), facts)

    def entries(self, limit: int) -> list[Entry]:
        """Return the objects below the address, at most `limit` or a few more."""
        if kind_of(self.uri) == "http":
            return list(_linked(self.filesystem, self.root, limit))
        start = self.root.rstrip("/") + "/"
        if self._patience:  # a listing may take long; a missing server shows sooner
            self.find_entry(self.root)
        listing = retried(lambda: _listed(self.filesystem, self.root, limit), attempts=self._attempts)
        below = [facts for facts in listing if facts["name"].startswith(start) and not PARTIAL.fullmatch(facts["name"])]
        return [_entry(facts["name"].removeprefix(start), facts) for facts in below]

    def read(self, entry: Entry, start: int, end: int | None) -> bytes:
        """Return the bytes of an object from `start` up to `end`; None: to its end."""
        limits = {} if end is None else {"start": start, "end": end}
        data: bytes = retried(lambda: self.filesystem.cat_file(entry.path, **limits), attempts=self._attempts)
        if end is not None and len(data) == entry.size:  # a web server may not support ranges
            return data[start:end]
        return data


def _listed(filesystem: "AbstractFileSystem", root: str, limit: int) -> list[dict[str, Any]]:
    """Return facts of all objects below a root, page by page, so that an endless listing is not collected first."""
    if hasattr(filesystem, "_lsdir") and hasattr(filesystem, "loop"):
        from fsspec.asyn import sync

        try:
            listing = sync(filesystem.loop, filesystem._lsdir, root, max_items=limit, delimiter="")  # noqa: SLF001
        except TypeError:  # a client whose listing has no such limits
            pass
        else:
            return [facts for facts in listing if facts["type"] == "file"]
    gathered: list[dict[str, Any]] = []
    for _, _, files in filesystem.walk(root, detail=True, on_error="raise"):
        gathered += files.values()
        if len(gathered) >= limit:
            break
    return gathered


def _linked(filesystem: "AbstractFileSystem", root: str, limit: int) -> Iterator[Entry]:
    """Yield the files that the pages of a web server link below a root."""
    top = root.rstrip("/") + "/"
    pages, seen, count = [(top, 0)], {top}, 0
    while pages:
        page, depth = pages.pop()
        for facts in retried(lambda page=page: filesystem.ls(page, detail=True)):  # type: ignore[misc]
            link = facts["name"]
            if not link.startswith(page) or link in seen or re.search(r"[?#]", link):
                continue
            seen.add(link)
            if facts["type"] == "directory":
                pages += [(link, depth + 1)] if depth < MAX_DEPTH else []
            elif count < limit:
                count += 1
                details = retried(lambda link=link: filesystem.info(link))  # type: ignore[misc]
                yield _entry(unquote(link.removeprefix(top)), {**details, "name": link})


def _is_page(facts: dict[str, Any]) -> bool:
    """Tell whether the content from a web server is a folder listing."""
    return facts.get("mimetype") == "text/html" and str(facts.get("url", "")).endswith("/")


def _entry(name: str, facts: dict[str, Any]) -> Entry:
    size = facts.get("size")
    time = facts.get("LastModified") or facts.get("mtime") or facts.get("updated") or facts.get("last_modified") or 0.0
    time = facts["modificationTime"] / 1000 if "modificationTime" in facts else time  # Hadoop
    if not isinstance(time, int | float):
        time = time.timestamp() if hasattr(time, "timestamp") else 0.0
    version = facts.get("ETag") or facts.get("etag") or facts.get("md5Hash") or facts.get("Last-Modified") or facts.get("created")
    return Entry(name, facts["name"], size, str(version or time or "").strip('"'), float(time))


def last_name(uri: str) -> str:
    """Return the last component of an address.

    >>> last_name("https://example.org/runs/nano.csv?sig=1"), last_name("s3://bucket/runs/nano/"), last_name("s3://bucket")
    ('nano.csv', 'nano', 'bucket')
    """
    name = shown(uri).rstrip("/").rpartition("/")[2]
    return unquote(name) if kind_of(uri) == "http" else name
