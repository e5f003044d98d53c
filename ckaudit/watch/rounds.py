"""Several runs watched in one process: they are polled in turn until there is a reason to stop."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic, sleep, time

from ckaudit.audit.load_run import is_ours, run_folder_of
from ckaudit.contract.io.folder import list_folder, refuse_special
from ckaudit.contract.schema.import_options import NO_IMPORT_OPTIONS, ImportOptions
from ckaudit.contract.schema.report import SEVERITIES, Severity
from ckaudit.contract.schema.watch import Snapshot, WatchEvent
from ckaudit.errors import UnreadableError
from ckaudit.policy.acceptance import OPEN, AcceptanceCriteria
from ckaudit.watch.announcer import CLEAN, FOUND, MAX_ALERTS, NOTHING, Announcer, ClockReading, VitalLimits, watching
from ckaudit.watch.foreign_watcher import ForeignWatcher
from ckaudit.watch.watcher import Watcher

LOOK_SECONDS = 0.5  # seconds between two polls


class WatchRounds:
    """Watches runs.

    Attributes:
        alerts: Events of each run by name, newest last.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        criteria: AcceptanceCriteria = OPEN,
        until: Severity | None = None,
        stall_after: float | None = None,
        notes: bool = False,
        import_options: ImportOptions = NO_IMPORT_OPTIONS,
        require_vital: bool = False,
    ) -> None:
        """Set up the watch.

        Args:
            paths: Existing run folders and logs of other programs.
            criteria: Policy and baseline.
            until: The mildest severity that ends the watch; None: none does.
            stall_after: Seconds without a line that count as a stall; None: learned from the run.
            notes: Whether notes are announced too.
            import_options: Facts that logs of other programs lack.
            require_vital: Whether a run cannot end clean if one of its vital checks could not judge.
        """
        self._vital = require_vital
        self._criteria, self._stall_after, self._notes, self._import_options = criteria, stall_after, notes, import_options
        self._watchers = [self._new_announcer(path) for path in paths]
        self._until_severities = SEVERITIES[: SEVERITIES.index(until) + 1] if until else ()
        self.alerts: dict[str, deque[WatchEvent]] = {watcher.name: deque(maxlen=MAX_ALERTS) for watcher in self._watchers}

    def run_until_end(self, say: Callable[[WatchEvent], None], *, after_poll: Callable[[], None] = lambda: None) -> int:
        """Watch until a finding is severe enough or all runs have ended.

        Args:
            say: Takes each event.
            after_poll: Called after each poll of all runs.

        Returns:
            1 if a finding was severe enough, 0 if all runs ended, 2 if not enough could be judged of one of them.
        """
        for watcher in self._watchers:
            say(watching(watcher.name))
        while True:
            began = monotonic()
            reached = False
            for event in self.poll():
                say(event)
                reached |= event.severity is not None and event.severity in self._until_severities
            after_poll()
            if reached:
                return FOUND
            if all(watcher.ended for watcher in self._watchers):
                return NOTHING if self._vital and any(vital.limits for vital in self.vital.values()) else CLEAN
            sleep(max(0.05, LOOK_SECONDS - (monotonic() - began)))

    @property
    def vital(self) -> dict[str, VitalLimits]:
        """How completely each run could be judged, by name."""
        return {watcher.name: watcher.vital for watcher in self._watchers}

    def _new_announcer(self, path: Path) -> Announcer:
        """Return the announcer of a run; an empty folder is taken for a run folder."""
        if is_ours(path):
            return Watcher(path, criteria=self._criteria, stall_after=self._stall_after, notes=self._notes)
        return ForeignWatcher(
            path, criteria=self._criteria, stall_after=self._stall_after, notes=self._notes, import_options=self._import_options
        )

    def poll(self) -> Iterator[WatchEvent]:
        """Poll every run once, and yield the new events."""
        for place, watcher in enumerate(self._watchers):
            if isinstance(watcher, Watcher) and watcher.is_foreign():
                self._watchers[place] = self._new_announcer(Path(watcher.name))
            for event in self._watchers[place].poll(ClockReading(monotonic(), time())):
                self.alerts[watcher.name].append(event)
                yield event

    def snapshots(self) -> list[Snapshot]:
        """Return the current states for a panel."""
        return [watcher.snapshot(self.alerts[watcher.name]) for watcher in self._watchers]


def wait_for(paths: Sequence[Path], seconds: float, *, every: float = LOOK_SECONDS) -> None:
    """Wait until every folder or log exists.

    Raises:
        UnreadableError: If one does not exist after `seconds`, cannot be read, or is only one file of a run folder.
    """
    end = monotonic() + seconds
    while missing := [path for path in paths if not path.exists()]:
        left = end - monotonic()
        if left <= 0:
            raise UnreadableError(f"{missing[0]} does not exist", hint="--wait SECONDS waits for a run that is yet to begin")
        sleep(min(every, left))
    for path in paths:
        refuse_special(path)
        if path.is_dir():
            list_folder(path)  # later, a folder that vanishes for a moment is waited for
        if whole := run_folder_of(path):
            raise UnreadableError(f"{path} is one file of a run", hint=f"name the folder: ckaudit watch {whole}")
