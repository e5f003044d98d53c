"""Where the work of a fleet is done: on this machine, or on a cluster that somebody else runs."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from ckaudit.contract.schema.fleet import FleetRun
from ckaudit.errors import UsageError
from ckaudit.fleet.source import RunSource


class Engine(Protocol):
    """What audits sources somewhere; `audit_run.audit_run` is the work, and does not raise.

    Attributes:
        workers: How many sources are audited at once, as far as it is known.
    """

    workers: int

    def results(self, sources: Iterable[RunSource]) -> Iterator[list[FleetRun]]:
        """Yield the rows of each source once, in any order, as they come.

        A source whose worker is lost is tried once more, where nothing else can be the reason; one whose worker is lost again
        is told by `audit_run.failed`.
        """


def engine_at(address: str = "", *, workers: int | None = None, seconds: float | None = None) -> Engine:
    """Return the engine at an address.

    Args:
        address: dask://HOST:PORT or ray://HOST:PORT; empty: the processes of this machine.
        workers: Of this machine; None: as many as this process may use cores.
        seconds: A source that takes longer is given up; None: none is.

    Raises:
        ModuleNotFoundError: Where the library of that engine is not installed.
        UsageError: Where the address is of another kind, nobody answers there, or a cluster is to watch the time.
    """
    kind, _, place = address.partition("://")
    if not address:
        from ckaudit.fleet.engines.local import LocalEngine

        return LocalEngine(workers, seconds=seconds)
    if seconds is not None:
        raise UsageError("--timeout is for the processes of this machine", hint="Leave out --engine, or --timeout.")
    if kind == "dask" and place:
        from ckaudit.fleet.engines.dask_cluster import DaskEngine

        return DaskEngine(place)
    if kind == "ray" and place:
        from ckaudit.fleet.engines.ray_cluster import RayEngine

        return RayEngine(place)
    raise UsageError(f"{address} is no engine", hint="Take dask://HOST:PORT, ray://HOST:PORT, or none for this machine.")
