"""Where a fleet is audited: in local processes, or on a cluster."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from ckaudit.contract.schema.fleet import FleetRun
from ckaudit.errors import UsageError
from ckaudit.fleet.source import RunSource


class Engine(Protocol):
    """Audits sources, locally or on a cluster, by `audit_run.audit_run`, which does not raise.

    Attributes:
        workers: Number of sources audited in parallel, if known.
    """

    workers: int

    def results(self, sources: Iterable[RunSource]) -> Iterator[list[FleetRun]]:
        """Yield the rows of each source once, in the order of completion.

        If a worker is lost, its source is tried once more, so that no other source can be the cause. After a second loss it gets
        the row of `audit_run.failed`.
        """


def engine_at(address: str = "", *, workers: int | None = None, seconds: float | None = None) -> Engine:
    """Return the engine at an address.

    Args:
        address: dask://HOST:PORT or ray://HOST:PORT; empty: local processes.
        workers: Number of local processes; None: as many as this process may use cores.
        seconds: Time-out per source; None: no limit.

    Raises:
        ModuleNotFoundError: If the library of that engine is not installed.
        UsageError: If the address is of another kind, no server answers there, or `seconds` is given for a cluster.
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
