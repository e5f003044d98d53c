"""The clients of object storage, with time-outs and retries, and explanations of their errors."""

import logging
import os
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from time import sleep
from typing import TYPE_CHECKING, Any, TypeVar

from ckaudit.errors import CkauditError, UnreadableError, UsageError
from ckaudit.optional import install_command
from ckaudit.remote.location import EXTRA_OF, kind_of, scheme_of, shown

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

Result = TypeVar("Result")

CONNECT_SECONDS = 5.0
"""Time-out of a connection."""

ANSWER_SECONDS = 20.0
"""Maximum silence of a server within an answer."""

ATTEMPTS = 4
"""Maximum number of attempts of a request that fails by a lost connection, a time-out or a busy server."""

REPEAT_THEMSELVES = {"az", "gs"}
"""Kinds of storage whose clients retry by themselves, six times and for half a minute, whatever their settings."""

LONGEST_WAIT = 10.0
"""Maximum seconds between two attempts."""

BUSY = {408, 425, 429, 500, 502, 503, 504}
"""Status codes that may change in a moment (RFC 9110, RFC 6585)."""

BUSY_CODES = re.compile(r"SlowDown|Throttl|TooManyRequests|ServiceUnavailable|InternalError|RequestTimeout|reduce your request")
"""Error codes of S3 and similar storage for the same conditions."""

PASSING = {
    "ClientConnectionError",
    "ClientPayloadError",
    "ConnectionClosedError",
    "EndpointConnectionError",
    "FSTimeoutError",
    "HTTPClientError",
    "IncompleteRead",
    "IncompleteReadError",
    "ReadTimeoutError",
    "ResponseParserError",
    "ResponseStreamingError",
}
"""Names of client errors that a retry may avoid; names, so that no client is imported for the test."""

SILENT = {"FSTimeoutError", "TimeoutError", "ReadTimeoutError", "ConnectTimeoutError", "SocketTimeoutError"}
NO_CREDENTIALS = {"NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "TokenRetrievalError", "RefreshError"}
NO_ACCOUNT = "Must provide either a connection_string or account_name"
"""Error of Azure's client without an account."""

CREDENTIALS = {
    "s3": "They are found as the AWS tools find them: AWS_PROFILE, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or ~/.aws; "
    "FSSPEC_S3_ANON=true reads a public bucket.",
    "gs": "They are found as Google's tools find them: GOOGLE_APPLICATION_CREDENTIALS, or gcloud auth application-default login.",
    "az": "They are found as Azure's tools find them: AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or az login.",
    "hdfs": "The user is that of HADOOP_USER_NAME, of a ticket of kinit, or of this machine; HADOOP_CONF_DIR names the cluster's "
    "settings.",
    "http": "A signed address may have expired; name and password stand before the host, or in ~/.netrc.",
}
"""Where the clients look for credentials."""


def open_filesystem(uri: str) -> "tuple[AbstractFileSystem, str]":
    """Return the file system of an address, and the path in it.

    The client finds credentials by its own means. Listings are not cached.

    Raises:
        UsageError: If such addresses are not supported.
        UnreadableError: If the client is not installed, or cannot be set up, as with a missing profile.
    """
    kind = kind_of(uri)
    if kind not in EXTRA_OF:
        schemes = ", ".join(f"{name}://" for name in (*EXTRA_OF, "https"))
        raise UsageError(f"{shown(uri)}: nothing here reads {scheme_of(uri)}:// addresses", hint=f"what is read: {schemes}")
    if kind == "gs":  # gcsfs would first ask for the type of the bucket by gRPC, for a minute if only HTTPS passes
        os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    try:
        for library in ("fsspec", *_libraries(kind)):
            import_module(library)
            if not (logger := logging.getLogger(library)).handlers:  # its errors are reported once, in our words
                logger.addHandler(logging.NullHandler())
    except ModuleNotFoundError as error:
        message = f"{shown(uri)}: to read it takes {error.name}, which is not installed"
        raise UnreadableError(message, hint=install_command(EXTRA_OF[kind])) from None
    if kind == "hdfs":
        return _hdfs(uri)
    import fsspec

    with naming(uri):
        client = fsspec.get_filesystem_class(scheme_of(uri))
        filesystem = client(**client._get_kwargs_from_urls(uri), **_settings(kind))  # noqa: SLF001  fsspec's own protocol
        if kind == "s3":
            filesystem.retries = 1  # `retried` retries, for all kinds alike
        return filesystem, filesystem._strip_protocol(uri)  # noqa: SLF001


def _hdfs(uri: str) -> "tuple[AbstractFileSystem, str]":
    from ckaudit.remote.hdfs import Hdfs, Patience, path_of, web_client

    client, patience = web_client if scheme_of(uri) == "webhdfs" else Hdfs, Patience(CONNECT_SECONDS, ANSWER_SECONDS)
    with naming(uri):
        return retried(lambda: client(uri, patience)), path_of(uri)


def _libraries(kind: str) -> tuple[str, ...]:
    return {"s3": ("s3fs",), "gs": ("gcsfs",), "az": ("adlfs",), "http": ("aiohttp",), "hdfs": ("hdfs_native", "requests")}.get(
        kind, ()
    )


def _settings(kind: str) -> dict[str, Any]:
    """Return the arguments of the client of a kind."""
    settings: dict[str, Any] = {"use_listings_cache": False}
    if kind == "s3":
        config = {
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": ANSWER_SECONDS,
            "retries": {"total_max_attempts": 1},
            "max_pool_connections": 32,
        }
        return {**settings, "config_kwargs": config}
    if kind == "http":
        import aiohttp

        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=ANSWER_SECONDS)
        return {**settings, "client_kwargs": {"timeout": limits, "trust_env": True}}
    if kind == "gs":
        return {**settings, "requests_timeout": ANSWER_SECONDS}
    if kind == "az":
        return {**settings, "connection_timeout": CONNECT_SECONDS, "read_timeout": ANSWER_SECONDS}
    return {} if kind == "memory" else settings


@contextmanager
def naming(uri: str) -> Iterator[None]:
    """Turn an exception of a client into an `UnreadableError` that names the object and a remedy."""
    try:
        yield
    except CkauditError:
        raise
    except Exception as error:
        raise unreadable(error, uri) from error


def retried(
    call: Callable[[], Result], *, attempts: int = ATTEMPTS, wait: float = 0.2, pause: Callable[[float], None] = sleep
) -> Result:
    """Return the result of `call`, with retries after a lost connection, a time-out or a busy server.

    Args:
        call: The call.
        attempts: Maximum number of attempts.
        wait: Seconds before the second attempt; each further wait is twice as long, up to a limit, with random jitter down to
            half.
        pause: Waits for a number of seconds.
    """
    for attempt in range(1, attempts + 1):
        try:
            return call()
        except Exception as error:
            if attempt == attempts or not is_passing(error):
                raise
            longest = min(wait * 2 ** (attempt - 1), LONGEST_WAIT)
            pause(longest * random.uniform(0.5, 1.0))  # noqa: S311  so that many clients do not come back at once
    raise AssertionError  # unreachable: the last attempt returns or raises


def is_passing(error: BaseException) -> bool:
    """Tell whether a retry may succeed: not if access is denied or the object does not exist."""
    if is_gone(error):
        return False
    for link in _chain(error):
        if isinstance(link, PermissionError | NotADirectoryError | IsADirectoryError):
            return False
        if _is_of_the_line(link):
            return True
        status = _status(link)
        if status is not None:
            return status in BUSY
        if BUSY_CODES.search(str(link)):
            return True
    return False


def is_gone(error: BaseException) -> bool:
    """Tell whether an error means that an object does not exist; the web client says so for any failure, with its cause."""
    if not isinstance(error, FileNotFoundError):
        return False
    behind = next((link for link in _chain(error) if not isinstance(link, FileNotFoundError)), None)
    return behind is None or (_status(behind) in (None, 404, 410) and not _is_of_the_line(behind))


def _is_of_the_line(error: BaseException) -> bool:
    """Tell whether an error is one of the connection, not of the request."""
    names = {cls.__name__ for cls in type(error).__mro__}
    return isinstance(error, ConnectionError | TimeoutError | EOFError) or bool(names & (PASSING | SILENT))


def unreadable(error: BaseException, uri: str) -> UnreadableError:
    """Return the explanation of a client's error, with the name of the object and a remedy."""
    chain = list(_chain(error))
    names = {cls.__name__ for link in chain for cls in type(link).__mro__}
    statuses = {_status(link) for link in chain}
    finds = CREDENTIALS.get(kind_of(uri), "")
    reason = _reason(error, uri)
    times = "again and again" if kind_of(uri) in REPEAT_THEMSELVES else f"{ATTEMPTS} times"
    if names & NO_CREDENTIALS or any(NO_ACCOUNT in str(link) for link in chain):
        what, hint = ": there are no credentials to read it with", finds
    elif isinstance(error, PermissionError) or statuses & {401, 403}:
        what, hint = f" may not be read{reason}", f"Are these the right credentials, and may they read here? {finds}".strip()
    elif is_gone(error) or statuses & {404, 410}:
        what, hint = " does not exist", "Is it spelled as the storage lists it, from the bucket or the root on?"
    elif names & SILENT:
        what = f": the server did not answer within {ANSWER_SECONDS:g} seconds, asked {times}"
        hint = "Try again, nearer to the storage, or copy the run here."
    elif any(BUSY_CODES.search(str(link)) for link in chain) or statuses & BUSY:
        what, hint = f": the server is too busy, asked {times}{reason}", "Try again later, or with fewer programs at once."
    elif isinstance(error, ConnectionError | EOFError) or names & PASSING:
        what = f": the connection failed, tried {times}{reason}"
        hint = "Are the network, the endpoint and a proxy as they should be?"
    else:
        what, hint = f" cannot be read{reason or f': {type(error).__name__}'}", finds if kind_of(uri) == "hdfs" else ""
    return UnreadableError(f"{shown(uri)}{what}", hint=hint)


def _reason(error: BaseException, uri: str) -> str:
    """Return a client's own message as the end of a sentence, without secrets in the query of an address."""
    words = " ".join(str(error).split()).replace(uri, shown(uri))
    words = re.sub(r"(https?://[^\s?'\"]*)\?[^\s'\"]*", r"\1", words)
    return f" ({words[:200]})" if words else ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__ or at.__context__


def _status(error: BaseException) -> int | None:
    """Return the HTTP status of an error."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return status if isinstance(status, int) else None
    # aiohttp, Azure, Google, requests
    statuses = (getattr(source, name, None) for source in (error, response) for name in ("status", "status_code", "code"))
    return next((status for status in statuses if isinstance(status, int)), None)
