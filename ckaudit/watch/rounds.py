"""Several runs in one process: each is looked at in turn, again and again, until there is a reason to stop."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic, sleep, time

from msgspec import UNSET

from ckaudit.contract.report import SEVERITIES, Severity
from ckaudit.contract.watch import VERSION, Snapshot, WatchEvent
from ckaudit.errors import UnreadableError
from ckaudit.policy.gate import OPEN, Gate
from ckaudit.watch.watcher import Moment, Watcher

EVERY = 0.5  # seconds between two looks
ALERTS = 200  # kept for the panel

CLEAN, FOUND, NOTHING = 0, 1, 2


class Rounds:
    """Watches runs.

    Attributes:
        alerts: What was said of each run, by its name, newest last.
    """

    def __init__(
        self, paths: Sequence[Path], *, gate: Gate = OPEN, until: Severity | None = None, stall_after: float | None = None,
        notes: bool = False,
    ) -> None:  # fmt: skip
        """Begin.

        Args:
            paths: Run folders that are there.
            gate: Policy and baseline.
            until: The least grave severity that ends the watch; None: none does.
            stall_after: Seconds without a line that are a stall; None: learned.
            notes: Whether notes are told too.
        """
        self._watchers = [Watcher(path, gate=gate, stall_after=stall_after, notes=notes) for path in paths]
        self._grave = SEVERITIES[: SEVERITIES.index(until) + 1] if until else ()
        self.alerts: dict[str, deque[WatchEvent]] = {each.name: deque(maxlen=ALERTS) for each in self._watchers}

    def go(self, say: Callable[[WatchEvent], None], *, after_look: Callable[[], None] = lambda: None) -> int:
        """Watch until a finding is grave enough or all runs have ended.

        Args:
            say: Takes each event.
            after_look: Called after each look at all runs.

        Returns:
            1 where a finding was grave enough, 0 where all runs ended.
        """
        for watcher in self._watchers:
            say(watching(watcher.name))
        while True:
            began = monotonic()
            reached = False
            for event in self.look():
                say(event)
                reached |= event.severity is not None and event.severity in self._grave
            after_look()
            if reached:
                return FOUND
            if all(each.ended for each in self._watchers):
                return CLEAN
            sleep(max(0.05, EVERY - (monotonic() - began)))

    def look(self) -> Iterator[WatchEvent]:
        """Look at every run once, and yield what there is to say."""
        for watcher in self._watchers:
            for event in watcher.look(Moment(monotonic(), time())):
                self.alerts[watcher.name].append(event)
                yield event

    def snapshots(self) -> list[Snapshot]:
        """Return what a panel shows now."""
        return [self._snapshot(each) for each in self._watchers]

    def _snapshot(self, watcher: Watcher) -> Snapshot:
        now = monotonic()
        manifest = watcher.manifest
        vitals, pace = watcher.vitals.gauges(manifest)
        planned = manifest.planned_steps if manifest is not None and manifest.planned_steps is not UNSET else None
        return Snapshot(
            run=watcher.name, step=watcher.step, planned=planned, silence=watcher.silence.lasts(now), usual=watcher.silence.usual,
            state=watcher.state, vitals=vitals, pace=pace, alerts=tuple(self.alerts[watcher.name]),
        )  # fmt: skip


def watching(name: str) -> WatchEvent:
    """Return the word that a run is watched from now on."""
    return WatchEvent(
        schema_version=VERSION, event="watching", time=round(time(), 3), run=name, message="the run is watched from now on"
    )


def wait_for(paths: Sequence[Path], seconds: float, *, every: float = EVERY) -> None:
    """Wait until every folder is there.

    Raises:
        UnreadableError: Where one is not after so many seconds, or is no folder.
    """
    end = monotonic() + seconds
    while missing := [path for path in paths if not path.exists()]:
        left = end - monotonic()
        if left <= 0:
            raise UnreadableError(f"{missing[0]} does not exist", hint="--wait SECONDS waits for a run that is yet to begin")
        sleep(min(every, left))
    for path in paths:
        if not path.is_dir():
            raise UnreadableError(f"{path} is no folder", hint="watch follows run folders; triage judges a file or a log")
