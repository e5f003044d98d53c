"""Several runs watched in one process: each is looked at in turn until there is a reason to stop."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from time import monotonic, process_time, sleep, time

from msgspec import UNSET

from ckaudit.audit.engine import triage_reads
from ckaudit.audit.load_run import is_ours, open_run, run_folder_of
from ckaudit.contract.io.folder import list_folder, refuse_special
from ckaudit.contract.schema.import_options import NO_IMPORT_OPTIONS, ImportOptions
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import SEVERITIES, Severity
from ckaudit.contract.schema.watch import VERSION, Snapshot, WatchEvent
from ckaudit.errors import CkauditError, UnreadableError, UsageError
from ckaudit.policy.acceptance import OPEN, AcceptanceCriteria
from ckaudit.watch.announcer import Announcer, ClockReading, VitalLimits
from ckaudit.watch.growing_run import GONE, Stamp, stamp_of
from ckaudit.watch.watcher import Watcher

LOOK_SECONDS = 0.5  # seconds between two looks

MAX_ALERTS = 200  # kept for the panel

CLEAN, FOUND, NOTHING = 0, 1, 2

CORE_SHARE = 0.03  # of one core, for reading again and judging

MAX_FIRST_SECONDS = 0.1  # seconds of processor time that the first reading counts at most

MIN_SECONDS_BETWEEN = 1.0  # seconds between two readings, however little they cost

RELIST_SECONDS = 5.0  # seconds between two lists of a folder

MOST_FILES = 1_000


class ForeignWatcher(Announcer):
    """Follows one log or the folder of another program, and reads of it what `triage` would read.

    When it grew it is read again as a whole, as often as that may cost.
    """

    def __init__(
        self,
        path: Path,
        *,
        criteria: AcceptanceCriteria = OPEN,
        stall_after: float | None = None,
        notes: bool = False,
        import_options: ImportOptions = NO_IMPORT_OPTIONS,
    ) -> None:
        """Begin with nothing read.

        Args:
            path: The log.
            criteria: Policy and baseline.
            stall_after: Seconds without a change that are a stall; None: learned.
            notes: Whether notes are told too.
            import_options: What the log does not say itself.
        """
        super().__init__(str(path), criteria=criteria, stall_after=stall_after, notes=notes)
        self._path, self._import_options = path, import_options
        self._files: list[Path] = []
        self._listed = self._due = float("-inf")
        self._seen: dict[Path, Stamp] = {}
        self._is_new, self._failed = False, ""
        self._facts: Manifest | None = None

    @property
    def manifest(self) -> Manifest | None:
        """What the log says of the run as a whole."""
        return self._facts

    def poll(self, moment: ClockReading) -> Iterator[WatchEvent]:
        """Read the log again where it grew and enough time went by, and yield what there is to say."""
        self._is_new |= self._has_grown(moment)
        if self._is_new and moment.now >= self._due:
            began = process_time()
            yield from self._read(moment)
            cost = process_time() - began
            # The first reading loads what it needs, and costs more than any later one.
            if self._due == float("-inf"):
                cost = min(cost, MAX_FIRST_SECONDS)
            self._due = moment.now + max(MIN_SECONDS_BETWEEN, cost / CORE_SHARE)
        yield from self._silences(moment)
        if self._has_ended() and not self._is_new and not self.ended:
            yield self._end(moment)

    def _has_grown(self, moment: ClockReading) -> bool:
        """Tell whether any file is not as it was at the last look."""
        if moment.now - self._listed >= RELIST_SECONDS:
            self._files, self._listed = _files(self._path), moment.now
        seen = {path: stamp for path in self._files if (stamp := stamp_of(path)) != GONE}
        if seen == self._seen:
            return False
        self._seen = seen
        # That a file was written is heard as lines are, whether or not they can be read yet.
        self.silence.note_lines(moment.now, [max((stamp.time for stamp in seen.values()), default=0) / 1e9], moment.wall)
        return True

    def _read(self, moment: ClockReading) -> Iterator[WatchEvent]:
        try:
            run = open_run(self._path, reads=triage_reads(), import_options=self._import_options)
        except CkauditError as error:
            if (
                isinstance(error, UsageError) and not self._has_announced
            ):  # there is a choice to be made, by whoever began the watch
                raise
            # A log that only begins may have no whole line yet: what is wrong for good is so at the next reading too.
            if self._failed == str(error):
                self._is_new = False
                yield self._say("error", f"{error}: it is read again when it changes", moment)
            self._failed = str(error)
            return
        self._is_new, self._failed = False, ""
        self._facts = run.manifest
        self.ended = self.ended and self._has_ended()
        yield from self._weigh(run, moment)


class WatchRounds:
    """Watches runs.

    Attributes:
        alerts: What was said of each run, by its name, newest last.
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
        """Begin.

        Args:
            paths: Run folders and logs of other programs that are there.
            criteria: Policy and baseline.
            until: The least grave severity that ends the watch; None: none does.
            stall_after: Seconds without a line that are a stall; None: learned.
            notes: Whether notes are told too.
            import_options: What logs of other programs do not say themselves.
            require_vital: Whether a run of which a vital check could not judge is not clean at its end.
        """
        self._vital = require_vital
        self._criteria, self._stall_after, self._notes, self._import_options = criteria, stall_after, notes, import_options
        self._watchers = [self._new_announcer(path) for path in paths]
        self._until_severities = SEVERITIES[: SEVERITIES.index(until) + 1] if until else ()
        self.alerts: dict[str, deque[WatchEvent]] = {watcher.name: deque(maxlen=MAX_ALERTS) for watcher in self._watchers}

    def run_until_end(self, say: Callable[[WatchEvent], None], *, after_poll: Callable[[], None] = lambda: None) -> int:
        """Watch until a finding is grave enough or all runs have ended.

        Args:
            say: Takes each event.
            after_poll: Called after each look at all runs.

        Returns:
            1 where a finding was grave enough, 0 where all runs ended, 2 where not enough could be judged of one of them.
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
        """How much could be judged of each run, by its name."""
        return {watcher.name: watcher.vital for watcher in self._watchers}

    def _new_announcer(self, path: Path) -> Announcer:
        """Return what watches a run; of a folder in which nothing stands yet, a run folder is expected."""
        if is_ours(path):
            return Watcher(path, criteria=self._criteria, stall_after=self._stall_after, notes=self._notes)
        return ForeignWatcher(
            path, criteria=self._criteria, stall_after=self._stall_after, notes=self._notes, import_options=self._import_options
        )

    def poll(self) -> Iterator[WatchEvent]:
        """Look at every run once, and yield what there is to say."""
        for place, watcher in enumerate(self._watchers):
            if isinstance(watcher, Watcher) and watcher.is_foreign():
                self._watchers[place] = self._new_announcer(Path(watcher.name))
            for event in self._watchers[place].poll(ClockReading(monotonic(), time())):
                self.alerts[watcher.name].append(event)
                yield event

    def snapshots(self) -> list[Snapshot]:
        """Return what a panel shows now."""
        return [snapshot_of(watcher, self.alerts[watcher.name]) for watcher in self._watchers]


def snapshot_of(watcher: Announcer, alerts: Iterable[WatchEvent]) -> Snapshot:
    """Return one run at this moment, with what was said of it."""
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
        alerts=tuple(alerts),
        early=watcher.early,
    )


def watching(name: str) -> WatchEvent:
    """Return the event that says that a run is watched from now on."""
    return WatchEvent(
        schema_version=VERSION, event="watching", time=round(time(), 3), run=name, message="the run is watched from now on"
    )


def wait_for(paths: Sequence[Path], seconds: float, *, every: float = LOOK_SECONDS) -> None:
    """Wait until every folder or log is there.

    Raises:
        UnreadableError: Where one is not after so many seconds, may not be read, or is only one file of a run folder.
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
            list_folder(path)  # later, one that is away for a moment is waited for
        if whole := run_folder_of(path):
            raise UnreadableError(f"{path} is one file of a run", hint=f"name the folder: ckaudit watch {whole}")


def _files(path: Path) -> list[Path]:
    """Return the files whose growth is looked for, at most so many of a folder."""
    if not path.is_dir():
        return [path]
    paths = sorted(file for file in path.rglob("*") if file.is_file())
    return paths[-MOST_FILES:]
