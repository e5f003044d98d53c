"""What lies below an address, and its bytes, through the clients of fsspec: the same for every kind of storage."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import unquote

from ckaudit.remote.filesystem import ANSWER_SECONDS, ATTEMPTS, REPEAT_THEMSELVES, is_gone, open_filesystem, retried
from ckaudit.remote.location import kind_of, shown

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

MAX_DEPTH = 8
"""Folders below folders that are listed on the web, where links can go round in a circle."""


PARTIAL = re.compile(r"(?:.*/)?\.[^/]+\.tmp-\d+")
"""Names of files that are being written, where a file does not appear whole by itself."""


class Entry(NamedTuple):
    """One object.

    Attributes:
        name: Its name below the address, its last name where it is the address itself.
        path: Its name for the client.
        size: Its bytes; None: the server does not say.
        version: What changes when its content does, such as its ETag; empty: the server does not say.
        time: When it was written, Unix time; 0: the server does not say.
    """

    name: str
    path: str
    size: int | None
    version: str
    time: float


class Storage(Protocol):
    """What lies below one address."""

    def root_entry(self) -> Entry | None:
        """Return the address as one object; None: it is none."""
        ...

    def entries(self, limit: int) -> list[Entry]:
        """Return the objects below the address, `limit` or a few more where there are more."""
        ...

    def find_entry(self, path: str) -> Entry | None:
        """Return an object by its name for the client as it is now; None: it is gone."""
        ...

    def read(self, entry: Entry, start: int, end: int | None) -> bytes:
        """Return the bytes of an object from `start` to before `end`; None: to its end."""
        ...


class AnyStorage:
    """What lies below one address, through fsspec."""

    def __init__(self, uri: str) -> None:
        """Open the client.

        Raises:
            UsageError: Where nothing reads such addresses.
            UnreadableError: Where the client is not installed.
        """
        self.uri = uri
        self.filesystem, self.root = open_filesystem(uri)
        repeats = kind_of(uri) in REPEAT_THEMSELVES
        self._attempts = 1 if repeats else ATTEMPTS
        self._patience = {"timeout": ANSWER_SECONDS} if repeats else {}

    def root_entry(self) -> Entry | None:
        """Return the address as one object; None: it is none."""
        return self.find_entry(self.root)

    def find_entry(self, path: str) -> Entry | None:
        """Return an object by its name for the client as it is now; None: it is gone."""
        try:
            facts = retried(lambda: self.filesystem.info(path, **self._patience), attempts=self._attempts)
        except FileNotFoundError as error:
            if is_gone(error):
                return None
            raise
        return None if facts["type"] != "file" or _is_page(facts) else _entry(last_name(self.uri), facts)

    def entries(self, limit: int) -> list[Entry]:
        """Return the objects below the address, `limit` or a few more where there are more."""
        if kind_of(self.uri) == "http":
            return list(_linked(self.filesystem, self.root, limit))
        start = self.root.rstrip("/") + "/"
        if self._patience:  # a listing may take its time; whether anybody answers at all shows sooner
            self.find_entry(self.root)
        listing = retried(lambda: _listed(self.filesystem, self.root, limit), attempts=self._attempts)
        below = [facts for facts in listing if facts["name"].startswith(start) and not PARTIAL.fullmatch(facts["name"])]
        return [_entry(facts["name"].removeprefix(start), facts) for facts in below]

    def read(self, entry: Entry, start: int, end: int | None) -> bytes:
        """Return the bytes of an object from `start` to before `end`; None: to its end."""
        limits = {} if end is None else {"start": start, "end": end}
        data: bytes = retried(lambda: self.filesystem.cat_file(entry.path, **limits), attempts=self._attempts)
        if end is not None and len(data) == entry.size:  # a server on the web may not know ranges
            return data[start:end]
        return data


def _listed(filesystem: "AbstractFileSystem", root: str, limit: int) -> list[dict[str, Any]]:
    """Return facts of all objects below a root, page by page, so that a listing without end is not gathered first."""
    if hasattr(filesystem, "_lsdir") and hasattr(filesystem, "loop"):
        from fsspec.asyn import sync

        try:
            listing = sync(filesystem.loop, filesystem._lsdir, root, max_items=limit, delimiter="")  # noqa: SLF001
        except TypeError:  # a client whose listing knows no such limits
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
    """Yield what the pages of a web server link below a root."""
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
    """Tell whether what a web server sent is its list of a folder."""
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
    """Return the last name in an address.

    >>> last_name("https://example.org/runs/nano.csv?sig=1"), last_name("s3://bucket/runs/nano/"), last_name("s3://bucket")
    ('nano.csv', 'nano', 'bucket')
    """
    name = shown(uri).rstrip("/").rpartition("/")[2]
    return unquote(name) if kind_of(uri) == "http" else name
