"""Hadoop's file system by its own protocol and over the web, with the fsspec calls that runs need and with time-outs."""

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
"""Default ports of a name node (`dfs.namenode.rpc-address`, `.http-address`)."""

PAGE = 1000
"""Files listed within the time-out of one answer."""

LINES = 16
"""Connections to a server that stay open: as many as objects are fetched in parallel."""

USER = "HADOOP_USER_NAME"

_ANSWERED = re.compile(r'RPCError\("(?:[\w$]+\.)*(?P<what>[\w$]+)", "(?P<words>.*?)(?:\\n|"\))', re.DOTALL)
"""The form of a name node's error in the client; a Java stack trace follows it."""

_DENIED = {"AccessControlException", "AuthorizationException"}
_NOT_NOW = {"RetriableException", "SafeModeException", "StandbyException"}


class Patience(NamedTuple):
    """Time-outs in seconds for a connection and an answer."""

    connect: float
    answer: float


class Hdfs:
    """Access to files by Hadoop's own protocol.

    hdfs-native has no time-outs, and tries for minutes to reach a missing name node: a call that times out is left to its thread.
    """

    def __init__(self, uri: str, patience: Patience) -> None:
        """Open the client, and check the connection if the address names a machine.

        Raises:
            ImportError: If the client is not installed.
            OSError: If no server listens.
            UsageError: If the address names a user, or no name node.
        """
        server = uri.partition("://")[2].partition("/")[0]
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
        """Yield the files below a folder; the first request is made when the first one is taken."""
        yield from self._client.list_status(path, recursive=True)

    def cat_file(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes of a file from `start` up to `end`; None: to its end."""
        return self._in_time(partial(self._read, path, start, end))

    def pipe_file(self, path: str, data: bytes) -> None:
        """Write a file, and replace an existing one."""
        self._in_time(partial(self._write, path, data))

    def makedirs(self, path: str, **_: Any) -> None:
        """Make a folder and its parents."""
        self._in_time(partial(self._client.mkdirs, path, create_parent=True))

    def mv(self, source: str, target: str) -> None:
        """Rename a file, and replace an existing target."""
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
        """Return the result of `call`.

        Raises:
            OSError: If it fails, by the name node's error.
            TimeoutError: If it takes too long.
            UnreadableError: If it does, and the server has never answered.
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
    """Return fsspec's client of WebHDFS, with time-outs, writes in one request, and renames that replace the target.

    Raises:
        ImportError: If a dependency is not installed.
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
            """Yield the files of each folder; unlike fsspec's own method, it raises if a folder may not be read."""
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
    """Return an answer over the web; a lost connection and a time-out raise the built-in exceptions.

    Args:
        request: Makes the request.
        uri: An address on the server.
        heard: Gets an element with each answer.
        arguments: Arguments of the request.
        options: Keyword arguments of the request, including its time-out.
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
    """Return the error of a time-out: a retry is worthwhile only if the server has answered before."""
    if heard:
        return TimeoutError(f"no answer within {seconds:g} seconds")
    message = f"{shown(uri)}: the server did not answer within {seconds:g} seconds"
    return UnreadableError(message, hint="Is this the port of a name node, and does it run? If it is only busy, try again later.")


def path_of(uri: str) -> str:
    """Return the path in an address; Hadoop takes each character literally.

    >>> path_of("hdfs://node:8020/runs/a%20b"), path_of("hdfs:///runs"), path_of("hdfs://node")
    ('/runs/a%20b', '/runs', '/')
    """
    return "/" + uri.partition("://")[2].partition("/")[2]


def _opened(server: str, uri: str) -> "tuple[Client, str]":
    """Return a client, and the machine that must listen; empty: the settings of the cluster name it."""
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
    except OSError as error:  # an unknown host name is reported like a failed connection
        raise ConnectionError(f"{machine}: {error.strerror or error}") from error


def _facts(status: "FileStatus") -> dict[str, Any]:
    kind = "directory" if status.isdir else "file"
    return {"name": status.path, "type": kind, "size": status.length, "modificationTime": status.modification_time}


def _as_error(error: BaseException) -> BaseException:
    """Return a specific exception for an error of the client, which has one type for nearly everything."""
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
