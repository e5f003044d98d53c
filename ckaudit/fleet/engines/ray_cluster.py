"""An engine on a Ray cluster: its scheduler distributes the runs, and retries after a worker is lost."""

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, redirect_stdout
from io import StringIO
from itertools import islice
from typing import Any

from ckaudit.contract.schema.fleet import FleetRun
from ckaudit.errors import UsageError
from ckaudit.fleet.engines.cluster import AHEAD, check_versions, cluster_errors, must_answer, version_here
from ckaudit.fleet.engines.local import KILLED, Work, work
from ckaudit.fleet.source import RunSource
from ckaudit.optional import needed
from ckaudit.run.memory import free_memory, memory_limit

RETRIES = 1


class RayEngine:
    """A Ray cluster.

    Attributes:
        workers: Number of runs that all its CPUs audit in parallel.
    """

    def __init__(self, address: str, *, work: Work = work) -> None:
        """Connect to a cluster.

        Args:
            address: Host and port of its head, or "auto" on one of its machines.
            work: Called with each source.

        Raises:
            ModuleNotFoundError: If Ray is not installed.
            UsageError: If the cluster does not answer, or workers have another version of ckaudit.
        """
        with needed("--engine ray://", "ray"):
            import ray
        try:
            must_answer(address)
            ray.init(address=address, ignore_reinit_error=True, log_to_driver=False, configure_logging=False)
        except (OSError, RuntimeError, ValueError) as error:
            raise UsageError(
                f"no Ray cluster answers at {address}: {error}", hint="Name the address that `ray start --head` prints, or auto."
            ) from None
        self._ray, self._work = ray, work
        self.workers = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._audit = ray.remote(max_retries=RETRIES, num_cpus=1)(within_share).options(name="ckaudit")
        with cluster_errors("Ray"):
            check_versions([ray.get(ray.remote(version_here).remote())])

    def results(self, sources: Iterable[RunSource]) -> Iterator[list[FleetRun]]:
        """Yield the rows of each source as they complete; if a worker is lost, the cluster retries its source once."""
        waiting = iter(sources)
        handed_out: dict[Any, RunSource] = {}
        # Ray reports lost workers on standard output, which belongs to our output; the rows report them.
        with cluster_errors("Ray"), redirect_stdout(StringIO()), ExitStack() as at_end:
            at_end.callback(self._ray.shutdown)
            while True:
                for source in islice(waiting, self.workers * AHEAD - len(handed_out)):
                    handed_out[self._audit.remote(self._work, source)] = source
                if not handed_out:
                    return
                done, _ = self._ray.wait([*handed_out], num_returns=1)
                for reference in done:
                    yield self._rows(reference, handed_out.pop(reference))

    def _rows(self, reference: Any, source: RunSource) -> list[FleetRun]:
        from ckaudit.fleet.audit_run import failed

        try:
            rows: list[FleetRun] = self._ray.get(reference)
        except (self._ray.exceptions.WorkerCrashedError, self._ray.exceptions.OutOfMemoryError):
            return [failed(source, KILLED)]
        return rows


def within_share(work: Work, source: RunSource) -> list[FleetRun]:
    """Audit a source within the memory that its machine has per CPU."""
    from ckaudit.fleet.engines.preload import forget_garbage

    forget_garbage()
    with memory_limit(free_memory() // (os.cpu_count() or 1)):
        return work(source)
