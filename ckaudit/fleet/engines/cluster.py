"""What engines of clusters have in common: nobody answers, a worker has another version, the cluster is gone."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from socket import create_connection

from ckaudit import __version__
from ckaudit.errors import CkauditError, UsageError

CONNECT_SECONDS = 20

AHEAD = 4
"""Sources handed out for each worker, so that none waits while rows are on their way."""


def version_here() -> str:
    """Return the version of ckaudit in the process that asks."""
    return __version__


def check_versions(versions: Iterable[str]) -> None:
    """Raise `UsageError` where a worker has no ckaudit, or another version: one fleet is judged by one set of rules."""
    for version in versions:
        if version != __version__:
            what = f"ckaudit {version}" if version else "no ckaudit"
            raise UsageError(
                f"a worker has {what}, this is {__version__}", hint=f"Install ckaudit=={__version__} where the workers run."
            )


@contextmanager
def cluster_errors(name: str) -> Iterator[None]:
    """Name a cluster that is gone, and what helps, in its errors; what was audited until then is in the data set.

    Raises:
        CkauditError: In place of what the cluster's library raises.
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
    """Raise `OSError` where nobody listens: the libraries themselves would try for up to minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal():
        with create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS):
            pass
