"""Where the work of a fleet is done: on this machine, or on a cluster that somebody else runs."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from ckaudit.contract.schema.fleet import FleetRun
from ckaudit.fleet.source import Source


class Engine(Protocol):
    """What audits sources somewhere; `audit_run.audit_run` is the work, and does not raise.

    Attributes:
        workers: How many sources are audited at once, as far as it is known.
    """

    workers: int

    def results(self, sources: Iterable[Source]) -> Iterator[list[FleetRun]]:
        """Yield the rows of each source once, in any order, as they come.

        A source whose worker is lost is tried once more, where nothing else can be the reason; one whose worker is lost again
        is told by `audit_run.failed`.
        """
