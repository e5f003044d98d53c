"""Shared code of cluster engines: checks of connection and versions, and errors of a lost cluster."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from socket import create_connection

from ckaudit import __version__
from ckaudit.errors import CkauditError, UsageError

CONNECT_SECONDS = 20

AHEAD = 4
"""Sources submitted per worker, so that none waits while rows are transferred."""


def version_here() -> str:
    """Return the version of ckaudit in this process."""
    return __version__


def check_versions(versions: Iterable[str]) -> None:
    """Raise `UsageError` if a worker has no ckaudit, or another version: one set of rules must judge a fleet."""
    for version in versions:
        if version != __version__:
            what = f"ckaudit {version}" if version else "no ckaudit"
            raise UsageError(
                f"a worker has {what}, this is {__version__}", hint=f"Install ckaudit=={__version__} where the workers run."
            )


@contextmanager
def cluster_errors(name: str) -> Iterator[None]:
    """Turn errors of a lost cluster into one with its name and a remedy; rows audited so far are in the data set.

    Raises:
        CkauditError: In place of the exceptions of the cluster's library.
    """
    try:
        yield
    except CkauditError:
        raise
    except Exception as error:
        raise CkauditError(
            f"the {name} cluster is gone: {type(error).__name__}: {error}".split("\n", 1)[0],
            hint="Run the same command again once it is back: it goes on where it was.",
        ) from error


def must_answer(address: str) -> None:
    """Raise `OSError` if no server listens: the libraries themselves would try for up to minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal():
        with create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS):
            pass
