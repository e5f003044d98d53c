"""Hadoop's file system by its own protocol and over the web, with the calls of fsspec that runs need; none waits for long."""

import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from getpass import getuser
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ckaudit.errors import UnreadableError, UsageError
from ckaudit.remote.location import shown

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem
    from hdfs_native import Client, FileStatus

Result = TypeVar("Result")

PORT, WEB_PORT = "8020", "9870"
"""Where a name node listens unless an address says otherwise (`dfs.namenode.rpc-address`, `.http-address`)."""

PAGE = 1000
"""Files that are listed within the time of one answer."""

LINES = 16
"""Lines to a server that stay open: as many as objects are fetched at once."""

USER = "HADOOP_USER_NAME"

_ANSWERED = re.compile(r'RPCError\("(?:[\w$]+\.)*(?P<what>[\w$]+)", "(?P<words>.*?)(?:\\n|"\))', re.DOTALL)
"""How the client gives what a name node answered; Java's stack comes behind it."""

_DENIED = {"AccessControlException", "AuthorizationException"}
_NOT_NOW = {"RetriableException", "SafeModeException", "StandbyException"}


class Patience(NamedTuple):
    """Seconds that a connection and an answer may take."""

    connect: float
    answer: float


class Hdfs:
    """Files by Hadoop's own protocol.

    hdfs-native has no time-outs, and tries for minutes to reach a name node that is not there: a call without an answer in time
    is left to its thread.
    """

    def __init__(self, uri: str, patience: Patience) -> None:
        """Open the client, and see that somebody listens where the address names a machine.

        Raises:
            ImportError: Where the client is not installed.
            OSError: Where nobody listens.
            UsageError: Where the address names a user, or no name node.
        """
        server = _server(uri)
        if "@" in server:
            raise UsageError(f"{shown(uri)} is read as one user", hint=f"leave out what stands before the @, and set {USER}")
        self._uri, self._answer, self._heard = uri, patience.answer, False
        self._client, machine = _opened(server, uri)
        if machine:
            _must_listen(machine, patience.connect)

    def info(self, path: str) -> dict[str, Any]:
        """Return facts of a file or a folder."""
        return _facts(self._in_time(partial(self._client.get_file_info, path)))

    def walk(self, path: str, **_: Any) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
        """Yield files at any depth below a folder, page by page."""
        files = self._files(path)
        while page := self._in_time(lambda: list(islice(files, PAGE))):
            yield path, {}, {status.path: _facts(status) for status in page if not status.isdir}

    def _files(self, path: str) -> "Iterator[FileStatus]":
        """Yield what lies below a folder; nothing is asked before the first is taken."""
        yield from self._client.list_status(path, recursive=True)

    def cat_file(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes of a file from `start` to before `end`; None: to its end."""
        return self._in_time(partial(self._read, path, start, end))

    def pipe_file(self, path: str, data: bytes) -> None:
        """Write a file in place of the one that is there."""
        self._in_time(partial(self._write, path, data))

    def makedirs(self, path: str, **_: Any) -> None:
        """Make a folder, and those above it."""
        self._in_time(partial(self._client.mkdirs, path, create_parent=True))

    def mv(self, source: str, target: str) -> None:
        """Give a file another name, in place of the file that has it."""
        self._in_time(partial(self._client.rename, source, target, overwrite=True))

    def exists(self, path: str) -> bool:
        """Tell whether there is a file or a folder."""
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        return True

    def rm_file(self, path: str) -> None:
        """Delete a file."""
        self._in_time(partial(self._client.delete, path))

    def _read(self, path: str, start: int, end: int | None) -> bytes:
        reader = self._client.read(path)
        length = len(reader)
        end = length if end is None else min(end, length)
        return reader.read_range(start, end - start) if start < end else b""

    def _write(self, path: str, data: bytes) -> None:
        from hdfs_native import WriteOptions

        with self._client.create(path, WriteOptions(overwrite=True)) as writer:
            writer.write(data)

    def _in_time(self, call: Callable[[], Result]) -> Result:
        """Return what `call` returns.

        Raises:
            OSError: Where it failed, by what the name node said.
            TimeoutError: Where it takes too long.
            UnreadableError: Where it does, and there never was an answer.
        """
        results, errors, done = list[Result](), list[BaseException](), threading.Event()

        def work() -> None:
            try:
                results.append(call())
            except BaseException as error:  # noqa: BLE001  a panic of the client is none of Exception
                errors.append(error)
            done.set()

        threading.Thread(target=work, name="hdfs", daemon=True).start()
        if not done.wait(self._answer):
            raise _silence(self._uri, self._answer, heard=self._heard)
        self._heard = True
        if errors:
            raise _as_error(errors[0]) from None
        return results[0]


def web_client(uri: str, patience: Patience) -> "AbstractFileSystem":
    """Return fsspec's client of WebHDFS, with time-outs, writing in one request, and renaming over what is there.

    Raises:
        ImportError: Where what it needs is not installed.
    """
    from fsspec.implementations.webhdfs import WebHDFS
    from requests.adapters import HTTPAdapter

    class WebHdfs(WebHDFS):  # type: ignore[misc]  # fsspec has no types
        cachable = False

        def _connect(self) -> None:
            super()._connect()
            for scheme in ("http://", "https://"):
                self.session.mount(scheme, HTTPAdapter(pool_maxsize=LINES))
            self.session.request = partial(_requested, self.session.request, uri, heard, timeout=tuple(patience))

        def walk(self, path: str, **_: Any) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
            """Yield the files of each folder; fsspec's own passes over a folder that may not be read, and says nothing."""
            listing = self.ls(path, detail=True)
            yield path, {}, {facts["name"]: facts for facts in listing if facts["type"] == "file"}
            for facts in listing:
                if facts["type"] == "directory":
                    yield from self.walk(facts["name"])

        def pipe_file(self, path: str, value: bytes, **_: Any) -> None:
            place = self._call("CREATE", "put", path, redirect=False, overwrite="true").headers["Location"]
            self.session.put(self._apply_proxy(place), data=value).raise_for_status()

        def mv(self, path1: str, path2: str, **_: Any) -> None:
            self._call("RENAME", "put", path1, destination=path2, renameoptions="OVERWRITE")

    heard: list[bool] = []
    given = WebHdfs._get_kwargs_from_urls(uri)  # noqa: SLF001  fsspec's own protocol
    return WebHdfs(**{"port": WEB_PORT, "user": os.environ.get(USER) or getuser(), "use_listings_cache": False} | given)


def _requested(request: Callable[..., Any], uri: str, heard: list[bool], *arguments: Any, **options: Any) -> Any:
    """Return an answer over the web; a lost connection and silence have the names that they have everywhere.

    Args:
        request: What asks.
        uri: An address at the server.
        heard: Gets a member with each answer.
        arguments: What is asked.
        options: The same, and how long it may take.
    """
    import requests

    lost: Exception
    try:
        answer = request(*arguments, **options)
    except requests.ConnectTimeout as error:
        lost = TimeoutError(str(error))
    except requests.Timeout:
        lost = _silence(uri, options["timeout"][1], heard=bool(heard))
    except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError) as error:
        lost = ConnectionError(str(getattr(error.args[0], "reason", error)))
    else:
        heard.append(True)
        return answer
    raise lost


def _silence(uri: str, seconds: float, *, heard: bool) -> Exception:
    """Return what silence means: who has answered before is asked again, and who never has is not."""
    if heard:
        return TimeoutError(f"no answer within {seconds:g} seconds")
    message = f"{shown(uri)}: the server did not answer within {seconds:g} seconds"
    return UnreadableError(message, hint="Is this the port of a name node, and does it run? If it is only busy, try again later.")


def path_of(uri: str) -> str:
    """Return the path in an address; Hadoop takes each character as it is.

    >>> path_of("hdfs://node:8020/runs/a%20b"), path_of("hdfs:///runs"), path_of("hdfs://node")
    ('/runs/a%20b', '/runs', '/')
    """
    return "/" + uri.partition("://")[2].partition("/")[2]


def _server(uri: str) -> str:
    return uri.partition("://")[2].partition("/")[0]


def _opened(server: str, uri: str) -> "tuple[Client, str]":
    """Return a client, and the machine that is to listen; empty: the settings of the cluster say which ones do."""
    from hdfs_native import Client

    has_port = server.rpartition(":")[2].isdecimal()
    try:
        return Client(f"hdfs://{server}"), server if has_port else ""
    except RuntimeError as error:
        if not server:
            message = f"{shown(uri)} names no name node"
            raise UsageError(
                message, hint="write it like hdfs://host:8020/runs, or let HADOOP_CONF_DIR name the settings"
            ) from error
    machine = f"{server}:{PORT}"
    return Client(f"hdfs://{machine}"), machine


def _must_listen(machine: str, seconds: float) -> None:
    host, _, port = machine.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
    except TimeoutError:
        raise
    except OSError as error:  # a name that nobody knows is told as a connection that fails, too
        raise ConnectionError(f"{machine}: {error.strerror or error}") from error


def _facts(status: "FileStatus") -> dict[str, Any]:
    kind = "directory" if status.isdir else "file"
    return {"name": status.path, "type": kind, "size": status.length, "modificationTime": status.modification_time}


def _as_error(error: BaseException) -> BaseException:
    """Return an error of the client by what it means: it has one kind for nearly everything."""
    words = str(error).partition("\n")[0]
    if isinstance(error, OSError):
        return ConnectionError(words) if type(error) is OSError else type(error)(words)
    answered = _ANSWERED.search(str(error))
    if answered is None:
        return ConnectionError(words)
    what, words = answered["what"], answered["words"].replace('\\"', '"')
    if what in _DENIED:
        return PermissionError(words)
    return ConnectionError(words) if what in _NOT_NOW else OSError(f"{what}: {words}")
