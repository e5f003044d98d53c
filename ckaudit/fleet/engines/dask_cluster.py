"""An engine on a Dask cluster: its scheduler distributes the runs, and retries after a worker is lost."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from ckaudit.contract.schema.fleet import FleetRun
from ckaudit.errors import UsageError
from ckaudit.fleet.engines.cluster import AHEAD, CONNECT_SECONDS, check_versions, cluster_errors, must_answer, version_here
from ckaudit.fleet.engines.local import KILLED, Work, work
from ckaudit.fleet.source import RunSource
from ckaudit.optional import needed
from ckaudit.run.memory import memory_limit

if TYPE_CHECKING:
    from distributed import Client, Future


class DaskEngine:
    """A Dask cluster.

    Attributes:
        workers: Number of runs that all its workers audit in parallel.
    """

    def __init__(self, address: str, *, work: Work = work) -> None:
        """Connect to a scheduler.

        Args:
            address: Host and port of the scheduler.
            work: Called with each source.

        Raises:
            ModuleNotFoundError: If Dask is not installed.
            UsageError: If the scheduler does not answer, there is no worker, or workers have another version of ckaudit.
        """
        with needed("--engine dask://", "dask"):
            from distributed import Client
        try:
            must_answer(address)
            self._client = Client(f"tcp://{address}", timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"no Dask scheduler answers at {address}: {error}", hint="Name the address that `dask scheduler` prints."
            ) from None
        self._work = work
        self.workers = sum(self._client.nthreads().values())
        if not self.workers:
            self._client.close()
            raise UsageError(f"the Dask cluster at {address} has no worker", hint=f"Start one: dask worker tcp://{address}")
        check_versions(_versions(self._client))

    def results(self, sources: Iterable[RunSource]) -> Iterator[list[FleetRun]]:
        """Yield the rows of each source as they complete; if a worker is lost, the cluster gives its sources to another."""
        from distributed import as_completed

        waiting = iter(sources)
        with cluster_errors("Dask"), self._client:
            handed_out = {self._submit(source): source for source in islice(waiting, self.workers * AHEAD)}
            done = as_completed(handed_out, loop=self._client.loop, with_results=True, raise_errors=False)
            for future, rows in done:
                source = handed_out.pop(future)
                for following in islice(waiting, 1):
                    new = self._submit(following)
                    handed_out[new] = following
                    done.add(new)
                # The status is no test: it is lost again with the worker of rows that have arrived.
                yield rows if isinstance(rows, list) else _lost(future, source)

    def _submit(self, source: RunSource) -> object:
        return self._client.submit(within_worker, self._work, source, pure=False)


def within_worker(work: Work, source: RunSource) -> list[FleetRun]:
    """Audit a source within the memory that its worker has per thread."""
    from distributed import get_worker

    from ckaudit.fleet.engines.preload import forget_garbage

    forget_garbage()
    worker = get_worker()
    limit: int | None = worker.memory_manager.memory_limit
    with memory_limit(limit // max(1, worker.state.nthreads) if limit else None):
        return work(source)


def _lost(future: "Future", source: RunSource) -> list[FleetRun]:
    """Return the row of a source whose workers were lost repeatedly, or raise the error of another failure."""
    from distributed import KilledWorker

    from ckaudit.fleet.audit_run import failed

    with suppress(KilledWorker):
        future.result()
    return [failed(source, KILLED)]


def _versions(client: "Client") -> set[str]:
    """Return the versions of ckaudit on the workers; empty for a worker without it."""
    try:
        return set(client.run(version_here).values())
    except Exception:  # noqa: BLE001  a worker that cannot import ckaudit says so in as many ways as there are transports
        return {""}
