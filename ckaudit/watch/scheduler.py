"""Several runs in one process: each is looked at in turn, again and again, until there is a reason to stop."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic, sleep, time

from msgspec import UNSET

from ckaudit.audit.load_run import is_ours, whole_of
from ckaudit.contract.import_options import NOTHING_SAID, Choice
from ckaudit.contract.report import SEVERITIES, Severity
from ckaudit.contract.watch import VERSION, Snapshot, WatchEvent
from ckaudit.errors import UnreadableError
from ckaudit.policy.gate import OPEN, Gate
from ckaudit.watch.announcer import Look, Teller, Vital
from ckaudit.watch.importer_watch import ForeignWatcher
from ckaudit.watch.watcher import Watcher

EVERY = 0.5  # seconds between two looks
ALERTS = 200  # kept for the panel

CLEAN, FOUND, NOTHING = 0, 1, 2


class Rounds:
    """Watches runs.

    Attributes:
        alerts: What was said of each run, by its name, newest last.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        gate: Gate = OPEN,
        until: Severity | None = None,
        stall_after: float | None = None,
        notes: bool = False,
        choice: Choice = NOTHING_SAID,
        require_vital: bool = False,
    ) -> None:
        """Begin.

        Args:
            paths: Run folders and logs of other programs that are there.
            gate: Policy and baseline.
            until: The least grave severity that ends the watch; None: none does.
            stall_after: Seconds without a line that are a stall; None: learned.
            notes: Whether notes are told too.
            choice: What logs of other programs do not say themselves.
            require_vital: Whether a run of which a vital check could not judge is not clean at its end.
        """
        self._vital = require_vital
        self._gate, self._stall_after, self._notes, self._choice = gate, stall_after, notes, choice
        self._watchers = [self._begun(path) for path in paths]
        self._grave = SEVERITIES[: SEVERITIES.index(until) + 1] if until else ()
        self.alerts: dict[str, deque[WatchEvent]] = {each.name: deque(maxlen=ALERTS) for each in self._watchers}

    def go(self, say: Callable[[WatchEvent], None], *, after_look: Callable[[], None] = lambda: None) -> int:
        """Watch until a finding is grave enough or all runs have ended.

        Args:
            say: Takes each event.
            after_look: Called after each look at all runs.

        Returns:
            1 where a finding was grave enough, 0 where all runs ended, 2 where not enough could be judged of one of them.
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
                return NOTHING if self._vital and any(each.limits for each in self.vital.values()) else CLEAN
            sleep(max(0.05, EVERY - (monotonic() - began)))

    @property
    def vital(self) -> dict[str, Vital]:
        """How much could be judged of each run, by its name."""
        return {each.name: each.vital for each in self._watchers}

    def _begun(self, path: Path) -> Teller:
        """Return what watches a run; of a folder in which nothing stands yet, a run folder is expected."""
        if is_ours(path):
            return Watcher(path, gate=self._gate, stall_after=self._stall_after, notes=self._notes)
        return ForeignWatcher(path, gate=self._gate, stall_after=self._stall_after, notes=self._notes, choice=self._choice)

    def look(self) -> Iterator[WatchEvent]:
        """Look at every run once, and yield what there is to say."""
        for place, watcher in enumerate(self._watchers):
            if isinstance(watcher, Watcher) and watcher.is_foreign():
                self._watchers[place] = self._begun(Path(watcher.name))
            for event in self._watchers[place].look(Look(monotonic(), time())):
                self.alerts[watcher.name].append(event)
                yield event

    def snapshots(self) -> list[Snapshot]:
        """Return what a panel shows now."""
        return [self._snapshot(each) for each in self._watchers]

    def _snapshot(self, watcher: Teller) -> Snapshot:
        now = monotonic()
        manifest = watcher.manifest
        vitals, pace = watcher.vitals.gauges(manifest)
        planned = manifest.planned_steps if manifest is not None and manifest.planned_steps is not UNSET else None
        return Snapshot(
            run=watcher.name,
            step=watcher.step,
            planned=planned,
            silence=watcher.silence.lasts(now),
            usual=watcher.silence.usual,
            state=watcher.state,
            vitals=vitals,
            pace=pace,
            alerts=tuple(self.alerts[watcher.name]),
        )


def watching(name: str) -> WatchEvent:
    """Return the word that a run is watched from now on."""
    return WatchEvent(
        schema_version=VERSION, event="watching", time=round(time(), 3), run=name, message="the run is watched from now on"
    )


def wait_for(paths: Sequence[Path], seconds: float, *, every: float = EVERY) -> None:
    """Wait until every folder or log is there.

    Raises:
        UnreadableError: Where one is not after so many seconds, or is only one file of a run folder.
    """
    end = monotonic() + seconds
    while missing := [path for path in paths if not path.exists()]:
        left = end - monotonic()
        if left <= 0:
            raise UnreadableError(f"{missing[0]} does not exist", hint="--wait SECONDS waits for a run that is yet to begin")
        sleep(min(every, left))
    for path in paths:
        if whole := whole_of(path):
            raise UnreadableError(f"{path} is one file of a run", hint=f"name the folder: ckaudit watch {whole}")
